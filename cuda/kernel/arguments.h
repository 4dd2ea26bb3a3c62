#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

// The one parameter of every kernel. Arguments in arguments.go is the same in Go.
struct Arguments {
    u64 dst;
    u64 src[8];
    u64 n; // elements; for copies bytes
    double factor;
    u32 count; // sources
    u32 zero;
};

static_assert(sizeof(Arguments) == 96, "arguments.go says so");
