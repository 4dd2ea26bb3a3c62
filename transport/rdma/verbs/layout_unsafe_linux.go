//go:build (amd64 || arm64) && !nordma

package verbs

import "unsafe"

// What follows are types and numbers of infiniband/verbs.h of rdma-core, whose ABI has kept them
// since 2013. Objects of the library begin with what is here; the rest is its own.

// cContext is ibv_context.
type cContext struct {
	device     uintptr
	operations [32]uintptr // ibv_context_ops
	command    int32       // descriptor
	async      int32       // descriptor of events
	vectors    int32       // of completions
	_          int32
	_          [mutexBytes]byte
	marker     uintptr // abi_compat
}

// Which operations are what verbs.h calls inline.
const (
	opPoll         = 11 // poll_cq
	opArm          = 12 // req_notify_cq
	opPostReceives = 20 // post_srq_recv
	opPost         = 25 // post_send
)

// extended marks a context that is in a verbs_context (__VERBS_ABI_IS_EXTENDED). The word
// before it is then the size of both.
const extended = ^uintptr(0)

const leastExtended = unsafe.Sizeof(cContext{}) + unsafe.Sizeof(uintptr(0))

// cDeviceAttr is ibv_device_attr.
type cDeviceAttr struct {
	_        [108]byte
	pairs    int32 // max_qp
	posted   int32 // max_qp_wr
	_        [16]byte
	entries  int32 // max_cqe
	regions  int32 // max_mr
	_        [76]byte
	receives int32 // max_srq_wr
	_        [7]byte
	ports    uint8 // phys_port_cnt
	_        [4]byte
}

// cPortAttr is ibv_port_attr. The function that libraries export fills all of it but the end, which
// came later.
type cPortAttr struct {
	state     int32
	_         int32
	activeMTU int32
	gids      int32 // gid_tbl_len
	_         int32
	message   uint32 // max_msg_sz
	_         [10]byte
	lid       uint16
	_         [10]byte
	link      uint8 // link_layer
	_         uint8
	_         [80]byte // room for what may still come
}

const (
	portActive   = 4 // IBV_PORT_ACTIVE
	linkEthernet = 2 // IBV_LINK_LAYER_ETHERNET
)

// cDomain is ibv_pd.
type cDomain struct {
	context uintptr
}

// cRegion is ibv_mr.
type cRegion struct {
	context uintptr
	domain  uintptr
	address uintptr
	length  uint64
	_       uint32
	local   uint32
	remote  uint32
	_       uint32
}

const (
	accessLocalWrite  = 1
	accessRemoteWrite = 2
)

// cChannel is ibv_comp_channel.
type cChannel struct {
	context    uintptr
	descriptor int32
	_          int32
}

// cCompletions is ibv_cq.
type cCompletions struct {
	context uintptr
	channel uintptr
	cookie  uintptr
	_       uint32
	entries int32
}

// cReceives is ibv_srq.
type cReceives struct {
	context uintptr
	cookie  uintptr
	domain  uintptr
}

// cReceivesInit is ibv_srq_init_attr.
type cReceivesInit struct {
	cookie  uintptr
	entries uint32
	pieces  uint32
	_       uint32 // of a limit
	_       uint32
}

// cPair is ibv_qp.
type cPair struct {
	context  uintptr
	cookie   uintptr
	domain   uintptr
	sends    uintptr // its completions
	receives uintptr
	shared   uintptr // ibv_srq
	_        uint32
	number   uint32
	_        uint32
	kind     uint32
}

// cPairInit is ibv_qp_init_attr.
type cPairInit struct {
	cookie     uintptr
	sends      uintptr
	receives   uintptr
	shared     uintptr
	posted     uint32 // ibv_qp_cap from here
	_          uint32 // receives of its own
	pieces     uint32
	_          uint32
	inline     uint32
	kind       uint32
	completeAt uint32 // whether all sends complete
	_          uint32
}

const kindReliable = 2 // IBV_QPT_RC

// cPairAttr is ibv_qp_attr.
type cPairAttr struct {
	state          int32
	_              int32
	mtu            int32
	_              int32
	_              uint32
	remoteSequence uint32 // rq_psn
	sequence       uint32 // sq_psn
	remotePair     uint32
	access         uint32
	_              [20]byte // ibv_qp_cap
	path           cPath
	_              cPath // the alternate one
	_              [6]byte
	reads          uint8 // max_rd_atomic
	remoteReads    uint8
	notReadyTime   uint8 // min_rnr_timer
	port           uint8
	timeout        uint8
	retries        uint8
	notReady       uint8 // rnr_retry
	_              [11]byte
}

// cPath is ibv_ah_attr, whose first part is ibv_global_route.
type cPath struct {
	gid     [16]byte
	_       uint32
	index   uint8 // of this side's GID
	hops    uint8
	class   uint8
	_       uint8
	lid     uint16
	service uint8
	_       uint8
	_       uint8
	global  uint8 // whether the first part counts
	port    uint8
	_       uint8
}

const (
	stateInit    = 1
	stateReceive = 2 // IBV_QPS_RTR
	stateSend    = 3 // IBV_QPS_RTS
	stateError   = 6

	// Which fields ibv_modify_qp reads.
	maskState   = 1 << 0
	maskInit    = maskState | 1<<3 | 1<<4 | 1<<5                          // access, P_Key, port
	maskReceive = maskState | 1<<7 | 1<<8 | 1<<12 | 1<<15 | 1<<17 | 1<<20 // path, MTU, sequence, time, reads, pair
	maskSend    = maskState | 1<<9 | 1<<10 | 1<<11 | 1<<13 | 1<<16        // timeout, tries (two), reads, sequence
)

// cSend is ibv_send_wr.
type cSend struct {
	cookie    uint64
	next      uintptr
	pieces    uintptr
	count     int32 // of pieces
	operation int32
	flags     uint32
	immediate uint32 // big endian
	to        uint64
	key       uint32
	_         [76]byte
}

const (
	operationWrite     = 0
	operationWriteTell = 1 // IBV_WR_RDMA_WRITE_WITH_IMM

	flagComplete = 2 // IBV_SEND_SIGNALED
	flagInline   = 8
)

// cPiece is ibv_sge.
type cPiece struct {
	at    uint64
	bytes uint32
	key   uint32
}

// cReceive is ibv_recv_wr.
type cReceive struct {
	cookie uint64
	next   uintptr
	pieces uintptr
	count  int32
	_      int32
}

// cCompletion is ibv_wc.
type cCompletion struct {
	cookie    uint64
	status    uint32
	kind      uint32
	vendor    uint32
	bytes     uint32
	immediate uint32 // big endian
	pair      uint32
	_         [16]byte
}

const (
	kindReceive = 1 << 7          // a bit of the kinds of receives
	kindArrival = kindReceive | 1 // IBV_WC_RECV_RDMA_WITH_IMM
)

// cEvent is ibv_async_event.
type cEvent struct {
	element uint64 // an object, or the number of a port
	kind    int32
	_       int32
}

// The sizes that the library reads and writes.
var (
	_ [288 + mutexBytes]byte = [unsafe.Sizeof(cContext{})]byte{}
	_ [232]byte              = [unsafe.Sizeof(cDeviceAttr{})]byte{}
	_ [128]byte              = [unsafe.Sizeof(cPortAttr{})]byte{}
	_ [48]byte               = [unsafe.Sizeof(cRegion{})]byte{}
	_ [24]byte               = [unsafe.Sizeof(cReceivesInit{})]byte{}
	_ [64]byte               = [unsafe.Sizeof(cPairInit{})]byte{}
	_ [144]byte              = [unsafe.Sizeof(cPairAttr{})]byte{}
	_ [32]byte               = [unsafe.Sizeof(cPath{})]byte{}
	_ [128]byte              = [unsafe.Sizeof(cSend{})]byte{}
	_ [16]byte               = [unsafe.Sizeof(cPiece{})]byte{}
	_ [32]byte               = [unsafe.Sizeof(cReceive{})]byte{}
	_ [48]byte               = [unsafe.Sizeof(cCompletion{})]byte{}
	_ [16]byte               = [unsafe.Sizeof(cEvent{})]byte{}
)
