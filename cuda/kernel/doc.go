// Package kernel has the kernels that devices run: reductions of up to eight sources, sums that are
// scaled, conversions, copies, the tick of a word, and tables of such steps. It has their code,
// says how they are launched, and can do on the processor what a launch does. It launches nothing:
// that is a driver's.
//
// # The bits
//
// A kernel gives the bits of package ccl/kernel, whose comment defines them: one rounding for each
// operator, in the order of the sources, to the element type; NaN and their payloads by the rule of
// x86; -0 before +0; integers that wrap; subnormals that are kept. So a group on devices has the
// results of a group on the processor that runs the same plan. Devices have one NaN of their own,
// so the rule for NaN is spelt out (element.h). Sums and products are intrinsics that are never
// fused, and the options -fmad=false and -ftz=false say the same for everything else.
//
// F16 is converted by instructions. Sums and products of F16, and from sm_80 on those of BF16, are
// instructions for two elements in a word: rounding once to so few digits gives what rounding to
// F32 first gives. Where a result is NaN, the elements are done again by the rule. All other
// arithmetic of 16 and 8 bits is written out. What is an instruction on a device is another text in
// host.h: the conversions of F16, the sums and products.
//
// # Functions
//
//	goccl_reduce_OPERATOR_TYPE    dst = ((src[0] ⊕ src[1]) ⊕ src[2]) …, 1 to 8 sources
//	goccl_scale_TYPE              dst = ((src[0] + src[1]) + src[2] …) × factor, 1 to 8 sources
//	goccl_convert_TO_from_FROM    dst = src[0] in another type, where one of the two is F32
//	goccl_copy                    dst = src[0], n bytes
//	goccl_gather                  up to 8 chunks, each copied from a place of its own to one of its own
//	goccl_tick                    dst + 1 in dst, a word of 64 bits in memory of the host; n is 1
//	goccl_run_OPERATOR_TYPE       a table of steps: copies, reductions and scaling by that operator
//	goccl_run_copies              a table of steps that are copies
//
// There is one for each pair that dtype.Reducible allows, but pairs with the same bits share one:
// sums, products and bitwise operators of signed integers are those of unsigned ones, the logical
// operators are band, bor and bxor, and complex numbers are pairs of real ones, except in products.
// Avg and PremulSum are sums; goccl_scale does the scaling, of a contribution (one source) or of
// the last sum of an average (several). More than eight sources take several launches, of which
// each has the result so far as its first source.
//
// dst is the same memory as any source, or separate from all; conversions and copies need it
// separate. Addresses are aligned to the element, or to the parts of a complex number. Where all of
// them are at the same distance from a multiple of 16, most elements are read and written 16 bytes
// at a time; otherwise each by itself, which is right but slower. Copies use the largest unit by
// which dst and src are apart.
//
// # Launch
//
// A launch has BlockSize threads in a block, Call.Blocks blocks (or any other number), no shared
// memory but what its code declares, and one parameter: the 296 bytes of Arguments, little-endian.
//
//	offset  0   u64  dst
//	        8   u64  src[8], of which the first count are used
//	       72   u64  n, the number of units: elements of the function's type; bytes of a copy
//	       80   f64  factor, of goccl_scale
//	       88   u32  count of sources; 1 for conversions and copies, 0 for ticks
//	       92   u32  zero; of a step in a table, what it does
//	       96   u64  indirect: a bit for each source
//	      104   u64  place, base, bytes, of each source in turn
//
// Chunks have another parameter, the 392 bytes of Gather: dst, src, n, and the place, base and
// bytes of an indirect source, of 8 chunks, and then the count of those that are used. They are
// copied at the same time, so no chunk is written where another is read or written.
//
// A call for n elements of a complex type has 2 n units where the function is one of real numbers
// (Call.Units). These kernels do not wait for anything, and use ordinary loads and stores: they see
// what was written before they began, as far as the stream orders it, and promise nothing for what
// is written meanwhile. But who sees a tick sees all that came before it in its stream. Nobody else
// may write the word meanwhile, and one tick of it ends before the next begins.
//
// A source of a reduction, a scaling or a copy can be indirect. Then its owner decides where it is,
// later than the launch was enqueued: the kernel loads the word at the address place (Place), which
// says that the source is at an offset from base on, or else that it is at its address in src. The
// owner is another rank, so an offset beyond bytes, or one that is not aligned to the element,
// counts as none. A stream has written the word before the launch begins, and what it leads to.
//
// # Tables
//
// The parameter of goccl_run_… is a Table of up to 40 steps, so that a call of several steps takes
// one launch. A launch has up to MostBlocks blocks. Each executes all steps by itself, on the same
// part of every chunk (a multiple of 16 bytes), so no block waits for another of its launch.
// Between steps the threads of a block meet.
//
// Steps also signal other ranks and wait for them, by flags. A rank has flags in memory of its
// device, a word for each rank and block that writes it. A signal is a store that releases, for the
// whole system, behind a fence; a wait is a loop of loads that acquire, one thread for each flag.
// So what a block has written before it signals is seen by the block of the same number at its peer
// that has waited. After 256 looks at a flag a thread looks at a word of the host now and then,
// naps in between, and tells the host in another word what it waits for. If the host's word is not
// 0, the block ends.
//
// Or they put packets into memory of another rank: 8 bytes, of which 4 are data and 4 a flag, by
// one store, that the other one takes out again. Accesses of up to 64 bits that are aligned are not
// torn (PTX calls them single-copy atomic), so the flag says that the data beside it are there, and
// says nothing of other memory: neither fence nor signal is needed.
//
// A Run executes a table step by step, block by block, for drivers that simulate a device.
//
// # On the processor
//
// Operands decodes the bytes of other launches and tells what a launch reads and writes; Execute
// does the same with ccl/kernel, on memory that its caller finds for the addresses. A driver that
// simulates a device executes launches that way; it asks Places first, which are what a launch
// reads before, and has Resolve replace indirect sources by what it finds there.
//
// # Code
//
// Package gen compiles kernels.cu with one version of NVRTC, for each architecture and as PTX, and
// its output is in the repository, so neither building nor running goccl needs a compiler for
// devices. Machine code runs on devices of its major version with the same or a later minor one
// (but not on systems on a chip of another); all other devices take the PTX, which a driver of CUDA
// 12.9 or later compiles. host.h makes C++ of the same text, one thread after the other. The tests
// compile it with that and compare every function with ccl/kernel; ranks that wait for each other
// are threads then, and a block has one thread. What they do not see is what only a device does:
// the instructions that host.h replaces, and how threads that run at the same time share the work.
//
// go generate compares a digest of sources and options with the one in zkernels.go, and compiles if
// they differ. CI compiles the PTX and the code of one architecture again. To compile all takes
// some minutes, and the output of one version of one compiler does not change by itself; make
// kernels-check does it.
package kernel

//go:generate go run ./gen
