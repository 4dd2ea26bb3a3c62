// Package cuda is the contract between the library and a GPU driver: what the device groups of
// package cuda/group ask of one, and nothing more. Two drivers keep it: cuda/driver, which is
// NVIDIA's, opened at run time, and cuda/cudatest, which executes streams on memory of the host and
// reports accesses that nothing orders. Package cuda/conformance tests a driver against this text.
//
// # Contexts and threads
//
// A Context is the primary context of a device, which the process shares with everybody else in it
// (torch, too). It is retained, and never reset. A goroutine brackets its calls with Enter and
// Leave: in between it stays on its thread, and the context is the thread's current one. Leave puts
// back the context that was current before. The methods of Context (except Info, Enter, Leave,
// Adopt and Release) and of what it made may only be called in between, by any goroutine. What only
// looks at memory of the host can be called anywhere: Ptr, Bytes, Host, Native, Name, and the Load,
// Reached and Store of Registered.
//
// # Memory
//
// A Ptr is an address in the device's view. Device memory comes from Alloc, and can be shared by a
// file descriptor, which Import maps: in other processes, and for other devices. A device has
// access to what its contexts have allocated or imported, and to no other memory of devices. It can
// import memory of each device that it reaches (Reaches), of whatever process, and its copies and
// kernels use that like its own; the two directions of a pair of devices may differ. Memory of the
// host takes part after Register: it keeps its bytes for the host and gets a Ptr for the devices.
// Several processes may each register the same memory. Alloc, Register and Free may wait until all
// streams of the process have ended, so they belong to the beginning and the end of a group, and to
// the capture of a graph, when all ranks have come to the same call: nobody calls them while work
// is enqueued that waits for something, but for what a goroutine lets go soon that makes no call to
// the driver. The same holds for Load, Function and Unload.
//
// Network adapters reach device memory by a dma-buf, a descriptor that the kernel has them map.
// Whoever frees memory first ends what adapters still read of it. An address does not tell that
// memory was freed and allocated again since; the ID of its Range does.
//
// # Streams and events
//
// What is enqueued in one stream is executed in that order. What is enqueued in two streams is
// ordered only by events and words. Nothing that enqueues waits for
// the device, as long as a stream holds less than some hundred operations; a full one blocks the
// caller until it goes on.
//
// Event.Record marks a place in a stream. A Stream.Wait makes what is enqueued behind it wait for
// the place that the event marked when Wait was called; a later Record does not change that. An
// event that was never recorded is done, but a Wait for it is a mistake, and fails.
//
// # Words
//
// A word is 64 bits of registered memory, aligned to 8 bytes. Streams write words, and wait for
// them; the host loads and stores them. They are how host and device tell each other how far they
// are:
//
//   - A write by a stream comes after everything before it in that stream, and whoever sees the
//     value sees that as well, on the device and on the host.
//   - A Store by the host comes after everything that this goroutine did before; a stream that has
//     waited for the value sees it.
//   - A wait ends when the word, as a counter that may come round, is not before the value: when
//     int64(word - value) >= 0. Each word has one writer, and its values never go back.
//   - A word may instead be a flag: its writer writes a value, and the stream that has waited for
//     it writes 0, before the writer writes again. Each of these writes is ordered after the one
//     before. So what is enqueued is the same every time, as in a graph.
//   - A word may also be counted by a tick, a kernel that adds one (package cuda/kernel): it is a
//     write by its stream, of the value that comes next.
//   - A kernel may load a word, if something orders it behind the write whose value it is to see.
//   - When there is no other way out, the host stores 2⁶² or more (and less than 2⁶³) into a word,
//     to let go what waits for it. That needs no order, and the word is of no use any more.
//   - The operations of one Words are in order, as if each were enqueued by itself. Others may be
//     executed in between.
//
// A stream that waits for a word may keep other streams of the process from starting (the device
// has few hardware queues). So nothing may be enqueued that waits for a word whose writer waits for
// something that this process has still to enqueue.
//
// # Capture
//
// A stream can be in capture: what is enqueued becomes part of a graph instead of being executed.
// Others that wait for an event recorded in it join the capture, and the first one waits for them
// in the end. A graph can be launched any number of times, in order; its owner does so, and not the
// library. Stream.Retain tells the library when it is gone, so that what it uses can be given back.
// While any thread captures, calls that wait or query are illegal on other threads too, unless they
// have entered relaxed (Enter).
//
// # Errors
//
// Every error is a fault.Error. Mistakes in arguments are fault.Invalid, and the use of what was
// given back is fault.Closed, as is a second Free or Release; a second Destroy is no error. What a
// driver, a device or this machine does not offer is fault.NotSupported. Where the driver refused,
// the cause is an *Error with the call, the name and the number that it gave. An error of work that
// was enqueued earlier is reported by any later call; if Error.Sticky holds, the context is of no
// use any more, for anybody in the process.
//
// # Kernels
//
// Code has one parameter a kernel: some bytes, in which addresses are of the device's view. A
// launch may have any number of blocks and threads that the kernel allows.
//
// Most kernels never wait, so however many a stream holds, none occupies the device for longer than
// its work. Which ones may wait, package cuda/kernel says (TakesTable). These wait for flags: words
// of 64 bits in memory of devices, aligned to 8 bytes, that kernels write, with values that are
// compared as those of words are, and one writer each. Whoever sees a value sees what came before
// it in the block that wrote it. Or they wait for packets: words of which a half is data and the
// other half a number, that is compared for equality and orders nothing else. Such a kernel
// occupies its device meanwhile. So it has few blocks, all that it waits for must be executed
// without it, by other devices or in queues of their own, and it has a word of the host that lets
// it go: when it finds anything but 0 there, it ends, and writes nothing more. It cannot be part of
// a graph.
package cuda
