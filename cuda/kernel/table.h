#pragma once

#include "arguments.h"

// The one parameter of a kernel that executes a table of steps, of up to 4 KiB. Table in table.go is the same in Go.

#define MOST_RANKS 8
#define MOST_BLOCKS 8
#define MOST_STEPS 40

struct Table {
    u64 flags[MOST_RANKS]; // by rank: its flags, one for each rank and block that writes it
    u64 released;          // a word of the host: anything but 0 lets the kernel go
    u64 awaited;           // words of the host, by rank: what the kernel waits for
    u32 rank;
    u32 count; // of steps
    Step step[MOST_STEPS];
};

static_assert(sizeof(Table) == 3928, "table.go says so");

// What a step does. Those that move data do with their arguments what the kernel of that name does. A signal writes n
// to the flags of this rank at each peer whose bit is set in count. A wait ends when the flags of these peers are not
// before n: those of its own block, or of the first src[0] blocks if that is not 0.
//
// A put and a take move n bytes in packets of 8 bytes, in which 4 bytes of data come first, and then a flag, src[1],
// that is not 0: a put writes those at dst, which are a peer's, from the data at src[0], and a take waits for each of
// those at src[0], which rank src[2] writes, and writes the data to dst. A put writes src[2] packets in any case.
enum Kind { Copies = 1, Reduces, Scales, Signals, Waits, Puts, Takes };
