#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

// One thing that a kernel does. Step in arguments.go is the same in Go.
struct Step {
    u64 dst;
    u64 src[8];
    u64 n; // elements; for copies bytes
    double factor;
    u32 count; // sources
    u32 kind;  // in a table (table.h); else 0
};

// Where a source may be in place of its address: in memory of so many bytes from base on, at the place that a word
// tells. Lent in arguments.go is the same in Go.
struct Lent {
    u64 place; // address of the word
    u64 base;
    u64 bytes;
};

// The one parameter of a kernel that does one thing. Arguments in arguments.go is the same in Go.
struct Arguments : Step {
    u64 indirect; // bit k: lent[k] counts
    Lent lent[8];
};

// A chunk of a gather: where it goes, where it is, and its bytes.
struct Chunk {
    u64 dst;
    u64 src;
    u64 n;
    Lent lent; // without a place, the chunk is at its address
};

// The one parameter of the kernel that copies several chunks. Gather in arguments.go is the same in Go.
struct Gather {
    Chunk chunk[8];
    u64 count; // 1 to 8
};

static_assert(sizeof(Step) == 96 && sizeof(Arguments) == 296 && sizeof(Gather) == 392, "arguments.go says so");
