//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestLayout compares with what a C compiler says of verbs.h of rdma-core 44, as offsetof.
func TestLayout(t *testing.T) {
	var (
		context    cContext
		device     cDeviceAttr
		port       cPortAttr
		region     cRegion
		channel    cChannel
		queue      cCompletions
		receives   cReceives
		init       cReceivesInit
		pair       cPair
		pairInit   cPairInit
		attr       cPairAttr
		path       cPath
		send       cSend
		piece      cPiece
		receive    cReceive
		completion cCompletion
		event      cEvent
	)
	word := unsafe.Sizeof(uintptr(0))
	for _, each := range []struct {
		name      string
		got, want uintptr
	}{
		{"ibv_context.ops.poll_cq", unsafe.Offsetof(context.operations) + opPoll*word, 96},
		{"ibv_context.ops.req_notify_cq", unsafe.Offsetof(context.operations) + opArm*word, 104},
		{"ibv_context.ops.post_srq_recv", unsafe.Offsetof(context.operations) + opPostReceives*word, 168},
		{"ibv_context.ops.post_send", unsafe.Offsetof(context.operations) + opPost*word, 208},
		{"ibv_context.cmd_fd", unsafe.Offsetof(context.command), 264},
		{"ibv_context.async_fd", unsafe.Offsetof(context.async), 268},
		{"ibv_context.num_comp_vectors", unsafe.Offsetof(context.vectors), 272},
		{"ibv_context.abi_compat", unsafe.Offsetof(context.marker), 280 + mutexBytes},
		{"ibv_device_attr.max_qp", unsafe.Offsetof(device.pairs), 108},
		{"ibv_device_attr.max_qp_wr", unsafe.Offsetof(device.posted), 112},
		{"ibv_device_attr.max_cqe", unsafe.Offsetof(device.entries), 132},
		{"ibv_device_attr.max_mr", unsafe.Offsetof(device.regions), 136},
		{"ibv_device_attr.max_srq_wr", unsafe.Offsetof(device.receives), 216},
		{"ibv_device_attr.phys_port_cnt", unsafe.Offsetof(device.ports), 227},
		{"ibv_port_attr.active_mtu", unsafe.Offsetof(port.activeMTU), 8},
		{"ibv_port_attr.gid_tbl_len", unsafe.Offsetof(port.gids), 12},
		{"ibv_port_attr.max_msg_sz", unsafe.Offsetof(port.message), 20},
		{"ibv_port_attr.lid", unsafe.Offsetof(port.lid), 34},
		{"ibv_port_attr.link_layer", unsafe.Offsetof(port.link), 46},
		{"ibv_mr.addr", unsafe.Offsetof(region.address), 16},
		{"ibv_mr.length", unsafe.Offsetof(region.length), 24},
		{"ibv_mr.lkey", unsafe.Offsetof(region.local), 36},
		{"ibv_mr.rkey", unsafe.Offsetof(region.remote), 40},
		{"ibv_comp_channel.fd", unsafe.Offsetof(channel.descriptor), 8},
		{"ibv_cq.channel", unsafe.Offsetof(queue.channel), 8},
		{"ibv_cq.cq_context", unsafe.Offsetof(queue.cookie), 16},
		{"ibv_cq.cqe", unsafe.Offsetof(queue.entries), 28},
		{"ibv_srq.pd", unsafe.Offsetof(receives.domain), 16},
		{"ibv_srq_init_attr.attr.max_wr", unsafe.Offsetof(init.entries), 8},
		{"ibv_srq_init_attr.attr.max_sge", unsafe.Offsetof(init.pieces), 12},
		{"ibv_qp.pd", unsafe.Offsetof(pair.domain), 16},
		{"ibv_qp.send_cq", unsafe.Offsetof(pair.sends), 24},
		{"ibv_qp.recv_cq", unsafe.Offsetof(pair.receives), 32},
		{"ibv_qp.srq", unsafe.Offsetof(pair.shared), 40},
		{"ibv_qp.qp_num", unsafe.Offsetof(pair.number), 52},
		{"ibv_qp.qp_type", unsafe.Offsetof(pair.kind), 60},
		{"ibv_qp_init_attr.cap.max_send_wr", unsafe.Offsetof(pairInit.posted), 32},
		{"ibv_qp_init_attr.cap.max_send_sge", unsafe.Offsetof(pairInit.pieces), 40},
		{"ibv_qp_init_attr.cap.max_inline_data", unsafe.Offsetof(pairInit.inline), 48},
		{"ibv_qp_init_attr.qp_type", unsafe.Offsetof(pairInit.kind), 52},
		{"ibv_qp_attr.path_mtu", unsafe.Offsetof(attr.mtu), 8},
		{"ibv_qp_attr.rq_psn", unsafe.Offsetof(attr.remoteSequence), 20},
		{"ibv_qp_attr.sq_psn", unsafe.Offsetof(attr.sequence), 24},
		{"ibv_qp_attr.dest_qp_num", unsafe.Offsetof(attr.remotePair), 28},
		{"ibv_qp_attr.qp_access_flags", unsafe.Offsetof(attr.access), 32},
		{"ibv_qp_attr.ah_attr", unsafe.Offsetof(attr.path), 56},
		{"ibv_qp_attr.max_rd_atomic", unsafe.Offsetof(attr.reads), 126},
		{"ibv_qp_attr.max_dest_rd_atomic", unsafe.Offsetof(attr.remoteReads), 127},
		{"ibv_qp_attr.min_rnr_timer", unsafe.Offsetof(attr.notReadyTime), 128},
		{"ibv_qp_attr.port_num", unsafe.Offsetof(attr.port), 129},
		{"ibv_qp_attr.timeout", unsafe.Offsetof(attr.timeout), 130},
		{"ibv_qp_attr.retry_cnt", unsafe.Offsetof(attr.retries), 131},
		{"ibv_qp_attr.rnr_retry", unsafe.Offsetof(attr.notReady), 132},
		{"ibv_ah_attr.grh.sgid_index", unsafe.Offsetof(path.index), 20},
		{"ibv_ah_attr.grh.hop_limit", unsafe.Offsetof(path.hops), 21},
		{"ibv_ah_attr.grh.traffic_class", unsafe.Offsetof(path.class), 22},
		{"ibv_ah_attr.dlid", unsafe.Offsetof(path.lid), 24},
		{"ibv_ah_attr.sl", unsafe.Offsetof(path.service), 26},
		{"ibv_ah_attr.is_global", unsafe.Offsetof(path.global), 29},
		{"ibv_ah_attr.port_num", unsafe.Offsetof(path.port), 30},
		{"ibv_send_wr.next", unsafe.Offsetof(send.next), 8},
		{"ibv_send_wr.sg_list", unsafe.Offsetof(send.pieces), 16},
		{"ibv_send_wr.num_sge", unsafe.Offsetof(send.count), 24},
		{"ibv_send_wr.opcode", unsafe.Offsetof(send.operation), 28},
		{"ibv_send_wr.send_flags", unsafe.Offsetof(send.flags), 32},
		{"ibv_send_wr.imm_data", unsafe.Offsetof(send.immediate), 36},
		{"ibv_send_wr.wr.rdma.remote_addr", unsafe.Offsetof(send.to), 40},
		{"ibv_send_wr.wr.rdma.rkey", unsafe.Offsetof(send.key), 48},
		{"ibv_sge.lkey", unsafe.Offsetof(piece.key), 12},
		{"ibv_recv_wr.next", unsafe.Offsetof(receive.next), 8},
		{"ibv_recv_wr.num_sge", unsafe.Offsetof(receive.count), 24},
		{"ibv_wc.status", unsafe.Offsetof(completion.status), 8},
		{"ibv_wc.opcode", unsafe.Offsetof(completion.kind), 12},
		{"ibv_wc.vendor_err", unsafe.Offsetof(completion.vendor), 16},
		{"ibv_wc.byte_len", unsafe.Offsetof(completion.bytes), 20},
		{"ibv_wc.imm_data", unsafe.Offsetof(completion.immediate), 24},
		{"ibv_wc.qp_num", unsafe.Offsetof(completion.pair), 28},
		{"ibv_async_event.event_type", unsafe.Offsetof(event.kind), 8},
	} {
		require.Equal(t, each.want, each.got, each.name)
	}
	require.Equal(t, 57, maskInit)
	require.Equal(t, 1216897, maskReceive)
	require.Equal(t, 77313, maskSend)
}
