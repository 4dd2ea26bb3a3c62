package driver

// What follows are types and numbers of cuda.h.

// memOp is CUstreamBatchMemOpParams, as a wait or a write of 64 bits.
type memOp struct {
	operation uint32
	_         uint32
	address   uint64
	value     uint64
	flags     uint32
	_         uint32
	alias     uint64 // the driver's own
	_         uint64
}

const (
	opWait64  = 4 // CU_STREAM_MEM_OP_WAIT_VALUE_64
	opWrite64 = 5 // CU_STREAM_MEM_OP_WRITE_VALUE_64

	waitNotBefore = 0 // CU_STREAM_WAIT_VALUE_GEQ: (int64)(word - value) >= 0
	writeFenced   = 0 // CU_STREAM_WRITE_VALUE_DEFAULT: a fence of the whole system comes before it

	mostOps = 255 // of one call
)

// location is CUmemLocation.
type location struct {
	kind  int32
	index int32
}

// allocation is CUmemAllocationProp.
type allocation struct {
	kind        int32
	handles     int32
	location    location
	_           uintptr // of Windows
	compression uint8
	rdma        uint8 // gpuDirectRDMACapable
	usage       uint16
	_           [4]byte
}

// access is CUmemAccessDesc.
type access struct {
	location location
	flags    int32
}

// launchConfig is CUlaunchConfig.
type launchConfig struct {
	blocks     [3]uint32
	threads    [3]uint32 // of a block
	shared     uint32    // bytes, beyond those that the kernel asks for itself
	_          uint32
	stream     uintptr
	attributes uintptr
	count      uint32 // of attributes
	_          uint32
}

const (
	allocationPinned   = 1 // CU_MEM_ALLOCATION_TYPE_PINNED
	locationDevice     = 1 // CU_MEM_LOCATION_TYPE_DEVICE
	handleNone         = 0 // CU_MEM_HANDLE_TYPE_NONE
	handleDescriptor   = 1 // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
	granularityMinimum = 0 // CU_MEM_ALLOC_GRANULARITY_MINIMUM
	accessReadWrite    = 3 // CU_MEM_ACCESS_FLAGS_PROT_READWRITE

	memoryOfDevice = 2 // CU_MEMORYTYPE_DEVICE
	rangeDMABuf    = 1 // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD

	hostPortable = 1 // CU_MEMHOSTREGISTER_PORTABLE: for all contexts
	hostMapped   = 2 // CU_MEMHOSTREGISTER_DEVICEMAP

	streamNonBlocking = 1 // CU_STREAM_NON_BLOCKING: stream 0 does not wait for it, nor it for stream 0
	eventWithoutTime  = 2 // CU_EVENT_DISABLE_TIMING

	captureRelaxed = 2 // CU_STREAM_CAPTURE_MODE_RELAXED

	captureActive      = 1 // CU_STREAM_CAPTURE_STATUS_ACTIVE
	captureInvalidated = 2 // CU_STREAM_CAPTURE_STATUS_INVALIDATED

	objectUnordered  = 1 // CU_USER_OBJECT_NO_DESTRUCTOR_SYNC: nobody waits for its end by a call of CUDA
	graphTakesObject = 1 // CU_GRAPH_USER_OBJECT_MOVE: the caller's reference

	legacyStream = 1 // CU_GET_PROC_ADDRESS_LEGACY_STREAM: stream 0 is one for all threads
)

// Attributes of devices (CU_DEVICE_ATTRIBUTE_…).
const (
	processors           = 16 // MULTIPROCESSOR_COUNT
	computeMajor         = 75
	computeMinor         = 76
	hostRegisters        = 99  // HOST_REGISTER_SUPPORTED
	descriptorsSupported = 103 // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
	adaptersSupported    = 110 // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
	words64              = 122 // CAN_USE_64_BIT_STREAM_MEM_OPS; 93 is that of the first form
	dmaBufSupported      = 124 // DMA_BUF_SUPPORTED
)

// Attributes of addresses (CU_POINTER_ATTRIBUTE_…).
const (
	kindOfMemory = 2 // MEMORY_TYPE
	bufferID     = 7
)

// mostThreads is an attribute of functions (CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK).
const mostThreads = 0

// Results of calls.
const (
	invalidValue  = 1   // CUDA_ERROR_INVALID_VALUE
	invalidDevice = 101 // CUDA_ERROR_INVALID_DEVICE
	notFound      = 500 // CUDA_ERROR_NOT_FOUND
	notReady      = 600 // CUDA_ERROR_NOT_READY
)
