// run_OPERATOR_TYPE, run_copies: a table of steps in one launch, so that a short call does not cost a launch for each.
//
// Each block executes all steps on its own part of every chunk, and has flags of its own, so blocks never wait for each
// other. What a step has written is there for the next one, by a barrier of the block.

#include "table.h"

// What this block does of a step: the same bytes of a chunk, whatever is done with it, on all ranks.
INLINE Share of_block(const Step &a, u32 size)
{
    const u32 bytes = (u32)(a.n * size); // a division of 64 bits would be a call
    const u32 each = ((bytes + gridDim.x - 1) / gridDim.x + 15) & ~15u;
    const u32 begin = blockIdx.x * each, from = begin < bytes ? begin : bytes;
    Share s = {threadIdx.x, blockDim.x, (bytes - from < each ? bytes - from : each) / size, from};
    return s;
}

INLINE u64 flag_of(const Table &t, u32 owner, u32 writer, u32 block)
{
    return t.flags[owner] + (writer * MOST_BLOCKS + block) * sizeof(u64);
}

// The threads of the block have met, so what all of them did comes before.
INLINE void signal(const Table &t, const Step &a)
{
    for (u32 peer = threadIdx.x; peer < MOST_RANKS; peer += blockDim.x) {
        if (!(a.count >> peer & 1))
            continue;
        __threadfence_system();
        store_release(flag_of(t, peer, t.rank, blockIdx.x), a.n);
    }
}

// How often a flag is looked at before the word of the host, which is far away; the thread naps then, too.
#define PATIENCE 256
#define NAP 200 // ns

// Reports whether a wait for a rank goes on: otherwise the host has let the kernel go. It is called now and then, and what
// the wait is for is written down for the host, if the thread is the one that tells it.
INLINE bool goes_on(const Table &t, u32 peer, u64 value, bool tells, bool &told)
{
    if (load_acquire(t.released))
        return false;
    if (tells && !told && blockIdx.x == 0) {
        store_release(t.awaited + peer * sizeof(u64), value);
        told = true;
    }
    __nanosleep(NAP);
    return true;
}

// Waits for a flag. It reports whether the value has come.
INLINE bool reach(const Table &t, u32 peer, u32 block, u64 value)
{
    const u64 flag = flag_of(t, t.rank, peer, block);
    bool told = false;
    for (u32 looks = 1; (s64)(load_acquire(flag) - value) < 0; looks++)
        if (looks % PATIENCE == 0 && !goes_on(t, peer, value, true, told))
            return false;
    if (told)
        store_release(t.awaited + peer * sizeof(u64), 0);
    return true;
}

// Reports whether all flags of a wait have come, to all threads of the block alike.
INLINE bool wait(const Table &t, const Step &a)
{
    const u32 first = a.src[0] ? 0 : blockIdx.x, blocks = a.src[0] ? (u32)a.src[0] : 1;
    int lacks = 0;
    for (u32 i = threadIdx.x; i < blocks * MOST_RANKS; i += blockDim.x) {
        const u32 peer = i % MOST_RANKS;
        if ((a.count >> peer & 1) && !reach(t, peer, first + i / MOST_RANKS, a.n))
            lacks = 1;
    }
    return !__syncthreads_or(lacks);
}

// Packets are 8 bytes, aligned, that one store writes and one load reads, and no such store is torn (accesses of up to 64
// bits are atomic in PTX). So the flag of a packet says that its data are there, without a fence.
INLINE u64 packet_of(u32 data, u32 flag) { return data | (u64)flag << 32; }

// The bytes of word i of so many bytes, of which the last one may have fewer than four.
INLINE u32 load_word(u64 address, u64 i, u64 bytes)
{
    if (address % 4 == 0 && 4 * i + 4 <= bytes)
        return Memory<u32>::load(address, i);
    u32 word = 0;
    NOT_UNROLLED
    for (u64 at = 4 * i; at < 4 * i + 4 && at < bytes; at++)
        word |= (u32)Memory<u8>::load(address, at) << at % 4 * 8;
    return word;
}

INLINE void store_word(u64 address, u64 i, u64 bytes, u32 word)
{
    if (address % 4 == 0 && 4 * i + 4 <= bytes) {
        Memory<u32>::store(address, i, word);
        return;
    }
    NOT_UNROLLED
    for (u64 at = 4 * i; at < 4 * i + 4 && at < bytes; at++)
        Memory<u8>::store(address, at, (u8)(word >> at % 4 * 8));
}

INLINE void put(const Step &a)
{
    const Share s = of_block(a, 1);
    const u32 flag = (u32)a.src[1];
    const u64 first = s.bytes / 4, words = (s.n + 3) / 4;
    NOT_UNROLLED
    for (u64 i = s.thread; i < words; i += s.threads)
        store_relaxed(a.dst + (first + i) * 8, packet_of(load_word(a.src[0] + s.bytes, i, s.n), flag));
    NOT_UNROLLED
    for (u64 i = (a.n + 3) / 4 + thread_index(); i < a.src[2]; i += thread_count())
        store_relaxed(a.dst + i * 8, packet_of(0, flag));
}

// Reports whether all packets have come, to all threads of the block alike.
INLINE bool take(const Table &t, const Step &a)
{
    const Share s = of_block(a, 1);
    const u32 flag = (u32)a.src[1], peer = (u32)a.src[2];
    const u64 first = s.bytes / 4, words = (s.n + 3) / 4;
    int lacks = 0;
    NOT_UNROLLED
    for (u64 i = s.thread; i < words && !lacks; i += s.threads) {
        const u64 at = a.src[0] + (first + i) * 8;
        u64 packet;
        bool told = false;
        for (u32 looks = 1; (u32)((packet = load_relaxed(at)) >> 32) != flag; looks++)
            if (looks % PATIENCE == 0 && !goes_on(t, peer, flag, s.thread == 0, told)) {
                lacks = 1;
                break;
            }
        if (lacks)
            continue;
        if (told)
            store_release(t.awaited + peer * sizeof(u64), 0);
        store_word(a.dst + s.bytes, i, s.n, (u32)packet);
    }
    return !__syncthreads_or(lacks);
}

template <class T> INLINE void move(u64 dst, u64 src, u64 at) { Memory<T>::store(dst, at, Memory<T>::load(src, at)); }

// Does what copy_bytes does, but in one loop for all units: each of the kernels below has this code, and a block copies
// too little for loads that run ahead.
INLINE void copy_short(const Step &a)
{
    const Share s = of_block(a, 1);
    const u64 dst = a.dst + s.bytes, src = a.src[0] + s.bytes, apart = dst ^ src;
    const u32 shift = apart % 16 == 0 ? 4 : apart % 8 == 0 ? 3 : apart % 4 == 0 ? 2 : apart % 2 == 0 ? 1 : 0;
    u64 head = (0 - dst) & ((1u << shift) - 1);
    if (head > s.n)
        head = s.n;
    const u64 units = (s.n - head) >> shift, whole = units << shift;
    NOT_UNROLLED
    for (u64 i = s.thread; i < units + (s.n - whole); i += s.threads) {
        const u64 single = i - units; // the byte that it is, behind the units
        switch (i < units ? shift : 0) {
        case 4:
            move<Pack>(dst + head, src + head, i);
            break;
        case 3:
            move<u64>(dst + head, src + head, i);
            break;
        case 2:
            move<u32>(dst + head, src + head, i);
            break;
        case 1:
            move<u16>(dst + head, src + head, i);
            break;
        default:
            move<u8>(dst, src, i < units ? i : single < head ? single : single + whole);
        }
    }
}

// What a table may do with elements: nothing, one reduction, or a sum that can be scaled. Calls are too short for loads
// that run ahead.
struct Nothing {
    typedef u8 Element;
    INLINE void apply(const Step &) {}
};

template <class Operator> struct Reducing {
    typedef typename Operator::Element Element;
    INLINE void apply(const Step &a) { fold<Operator, 1>(a, a.src, Plain<Element>(), of_block(a, sizeof(Element))); }
};

template <class F> struct Summing {
    typedef typename F::Bits Element;

    // One fold for both, which halves the code.
    struct Finish {
        bool scales;
        Scaled<F> scaled;

        __device__ __forceinline__ Element element(Element x) const { return scales ? scaled.element(x) : x; }
        __device__ __forceinline__ Pack pack(const Pack &p) const { return scales ? scaled.pack(p) : p; }
    };

    INLINE void apply(const Step &a)
    {
        Finish finish = {a.kind == Scales, {a.factor}};
        fold<Sum<F>, 1>(a, a.src, finish, of_block(a, sizeof(Element)));
    }
};

template <> struct Reducing<Sum<F64>> : Summing<F64> {};
template <> struct Reducing<Sum<F32>> : Summing<F32> {};
template <> struct Reducing<Sum<F16>> : Summing<F16> {};
template <> struct Reducing<Sum<BF16>> : Summing<BF16> {};
template <> struct Reducing<Sum<F8E4M3>> : Summing<F8E4M3> {};
template <> struct Reducing<Sum<F8E5M2>> : Summing<F8E5M2> {};

template <class Work> INLINE void run(const Table &t)
{
    NOT_UNROLLED
    for (u32 i = 0; i < t.count; i++) {
        const Step &a = t.step[i];
        switch (a.kind) {
        case Signals:
            signal(t, a);
            continue;
        case Waits:
            if (!wait(t, a))
                return; // and nothing more is written, neither data nor flags
            continue;
        case Takes:
            if (!take(t, a))
                return;
            continue;
        case Puts:
            put(a);
            break;
        case Copies:
            copy_short(a);
            break;
        default:
            Work::apply(a);
        }
        __syncthreads();
    }
}

RUN(run_copies, run<Nothing>)

#define REDUCTION(name, ...) RUN(run_##name, run<Reducing<__VA_ARGS__>>)
#include "reductions.h"
#undef REDUCTION
