package conformance

import (
	"testing"

	"github.com/goccl/goccl/cuda"
)

// Options says what of the machine is tested.
type Options struct {
	Device int  // which device
	Child  bool // TestMain calls Child: what needs a second process is tested
	// Kernels says that all kernels are executed. Without it, that of copies must be: the other
	// tests of modules and launches have no other.
	Kernels bool
	Graphs  Graphs // nil: no graphs are made
}

// Run tests the drivers that make returns.
func Run(t *testing.T, make func(t *testing.T) cuda.Driver, o Options) {
	type needs struct{ words, registers, shares, child, kernels, graphs bool }
	var (
		nothing = needs{}
		host    = needs{registers: true}
		words   = needs{registers: true, words: true}
		graphs  = needs{registers: true, words: true, kernels: true, graphs: true}
	)
	for _, test := range []struct {
		name  string
		needs needs
		run   func(*bench)
	}{
		{"Devices", nothing, testDevices},
		{"Contexts", host, testContexts},
		{"EnterNests", host, testEnterNests},
		{"Outside", host, testOutside},
		{"GivenBack", nothing, testGivenBack},
		{"Relaxed", host, testRelaxed},
		{"Threads", host, testThreads},
		{"AllocSizes", host, testAllocSizes},
		{"CopySizes", host, testCopySizes},
		{"Registered", host, testRegistered},
		{"RegisterAgain", host, testRegisterAgain},
		{"Arguments", nothing, testArguments},
		{"Ranges", nothing, testRanges},
		{"DMABuf", nothing, testDMABuf},
		{"StreamOrder", host, testStreamOrder},
		{"Events", host, testEvents},
		{"EventNeverRecorded", nothing, testEventNeverRecorded},
		{"Strangers", nothing, testStrangers},
		{"EventRecordedAgain", words, testEventRecordedAgain},
		{"Done", words, testDone},
		{"Synchronize", words, testSynchronize},
		{"Adopt", host, testAdopt},
		{"DefaultStream", host, testDefaultStream},
		{"UrgentBesideWaits", words, testUrgentBesideWaits},
		{"NotCapturing", nothing, testNotCapturing},
		{"Reached", host, testReached},
		{"WordAfterData", words, testWordAfterData},
		{"WordBeforeData", words, testWordBeforeData},
		{"WordBetweenStreams", words, testWordBetweenStreams},
		{"WordComesRound", words, testWordComesRound},
		{"WordBatch", words, testWordBatch},
		{"WordBatchInOrder", words, testWordBatchInOrder},
		{"EnqueueBehindWait", words, testEnqueueBehindWait},
		{"DestroyPending", words, testDestroyPending},
		{"DestroyWaited", words, testDestroyWaited},
		{"Modules", nothing, testModules},
		{"Unloaded", nothing, testUnloaded},
		{"LaunchArguments", nothing, testLaunchArguments},
		{"LaunchOrder", words, testLaunchOrder},
		{"LaunchEvents", host, testLaunchEvents},
		{"LaunchAll", needs{registers: true, kernels: true}, testLaunchAll},
		{"LaunchPairs", needs{registers: true, kernels: true}, testLaunchPairs},
		{"LaunchIndirect", needs{registers: true, kernels: true}, testLaunchIndirect},
		{"LaunchGather", needs{registers: true, kernels: true}, testLaunchGather},
		{"Tables", needs{registers: true, kernels: true, words: true}, testTables},
		{"Tick", needs{registers: true, kernels: true}, testTick},
		{"CaptureNumbers", needs{graphs: true}, testCaptureNumbers},
		{"Replay", graphs, testReplay},
		{"GraphFlags", graphs, testGraphFlags},
		{"Retain", needs{registers: true, words: true, graphs: true}, testRetain},
		{"Descriptor", needs{registers: true, shares: true}, testDescriptor},
		{"OtherDevices", needs{registers: true, words: true, shares: true}, testOtherDevices},
		{"MemoryOfProcesses", needs{registers: true, shares: true, child: true}, testMemoryOfProcesses},
		{"WordsOfProcesses", needs{registers: true, words: true, child: true}, testWordsOfProcesses},
	} {
		if test.needs.kernels && !o.Kernels || test.needs.graphs && o.Graphs == nil {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, make(t), o.Device)
			b.graphs = o.Graphs
			for _, each := range []struct {
				needs, has bool
				what       string
			}{
				{test.needs.words, b.info.Words, "streams have no memory operations"},
				{test.needs.registers, b.info.Registers, "memory of the host cannot be registered"},
				{test.needs.shares, b.info.Shares, "memory has no descriptors"},
				{test.needs.child, o.Child, "the options allow no second process"},
			} {
				if each.needs && !each.has {
					t.Skip(each.what)
				}
			}
			test.run(b)
		})
	}
}
