// A library to preload (LD_PRELOAD) that emulates the two instructions of AVX512-FP16 which the kernels use, for
// processors that have AVX-512 but not these: VADDPH and VMULPH of 512-bit registers, rounded to nearest. Each of them
// ends in SIGILL there. The handler takes the instruction apart, computes on the registers that the signal saved, and
// goes on after it. Results are exact in double, and rounded once.
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

enum { MAP5 = 5, ADD = 0x58, MUL = 0x59, LENGTH = 6, LANES = 32 };
enum { SSE = 1, YMM = 2, ZMM_HI256 = 6, HI16_ZMM = 7 }; // parts of the saved state

static unsigned part_offset[8]; // in the layout of XSAVE, as CPUID tells

static double value(uint16_t h) {
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double v = exponent == 31 ? INFINITY : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -v : v;
}

static int is_nan(uint16_t h) { return (h & 0x7fff) > 0x7c00; }

static uint16_t rounded(double v) {
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    v = fabs(v);
    if (isinf(v)) return sign | 0x7c00;
    int exponent = -24; // of the last place
    if (v >= 0x1p-14) exponent = ilogb(v) - 10;
    double places = rint(ldexp(v, -exponent)); // exact but for this, which is to nearest even
    if (exponent == -24) return sign | (uint16_t)places; // 1024 places are the smallest normal number
    unsigned bits = ((unsigned)(exponent + 24) << 10) + (unsigned)places;
    return sign | (bits > 0x7c00 ? 0x7c00 : bits);
}

static uint16_t combined(int opcode, uint16_t first, uint16_t second) {
    if (is_nan(first)) return first | 0x200;
    if (is_nan(second)) return second | 0x200;
    double v = opcode == ADD ? value(first) + value(second) : value(first) * value(second);
    return isnan(v) ? 0xfe00 : rounded(v);
}

// piece is where one part of the saved state holds its share of a register. A part that is not there is in its initial
// state, all zeros.
static void piece(uint8_t *state, int part, unsigned at, unsigned bytes, uint8_t *reg, int write) {
    uint64_t *present = (uint64_t *)(state + 512);
    unsigned size[] = {[SSE] = 256, [YMM] = 256, [ZMM_HI256] = 512, [HI16_ZMM] = 1024};
    uint8_t *p = state + part_offset[part];
    if (!(*present >> part & 1)) {
        memset(p, 0, size[part]);
        *present |= 1ull << part;
    }
    if (write) memcpy(p + at, reg, bytes);
    else memcpy(reg, p + at, bytes);
}

static void access_register(uint8_t *state, unsigned n, uint16_t *lanes, int write) {
    uint8_t *reg = (uint8_t *)lanes;
    if (n >= 16) {
        piece(state, HI16_ZMM, 64 * (n - 16), 64, reg, write);
        return;
    }
    piece(state, SSE, 16 * n, 16, reg, write);
    piece(state, YMM, 16 * n, 16, reg + 16, write);
    piece(state, ZMM_HI256, 32 * n, 32, reg + 32, write);
}

static void on_sigill(int number, siginfo_t *info, void *context) {
    (void)info;
    mcontext_t *machine = &((ucontext_t *)context)->uc_mcontext;
    const uint8_t *code = (const uint8_t *)machine->gregs[REG_RIP];
    // 62, then R X B R' 0 and the map; W vvvv 1 pp; z L'L b V' aaa. R X B R' vvvv V' are inverted.
    int known = code[0] == 0x62 && (code[1] & 15) == MAP5 && (code[2] & 0x87) == 0x04 && (code[3] & 0xf7) == 0x10 &&
                (code[4] == ADD || code[4] == MUL) && code[5] >> 6 == 3;
    if (!known) {
        signal(number, SIG_DFL); // the instruction is met again, and ends the process
        return;
    }
    unsigned to = (~code[1] >> 4 & 8) | (~code[1] & 16) | (code[5] >> 3 & 7);
    unsigned first = (~code[2] >> 3 & 15) | (~code[3] << 1 & 16);
    unsigned second = (~code[1] >> 2 & 16) | (~code[1] >> 2 & 8) | (code[5] & 7);
    uint16_t a[LANES], b[LANES];
    uint8_t *state = (uint8_t *)machine->fpregs;
    access_register(state, first, a, 0);
    access_register(state, second, b, 0);
    for (int i = 0; i < LANES; i++) a[i] = combined(code[4], a[i], b[i]);
    access_register(state, to, a, 1);
    machine->gregs[REG_RIP] += LENGTH;
}

typedef int sigaction_function(int, const struct sigaction *, struct sigaction *);

static sigaction_function *next(void) { return (sigaction_function *)dlsym(RTLD_NEXT, "sigaction"); }

// The runtime of Go asks for SIGILL too, and does not get it.
int sigaction(int number, const struct sigaction *wanted, struct sigaction *old) {
    return next()(number, number == SIGILL ? NULL : wanted, old);
}

__attribute__((constructor)) static void start(void) {
    part_offset[SSE] = 160;
    for (int part = YMM; part <= HI16_ZMM; part++) {
        unsigned size, offset, c, d;
        if (__get_cpuid_count(0xd, part, &size, &offset, &c, &d)) part_offset[part] = offset;
    }
    struct sigaction ours = {.sa_sigaction = on_sigill, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&ours.sa_mask);
    next()(SIGILL, &ours, NULL);
}
