package verbs

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNames has every name that libibverbs gives to a number, and numbers beyond.
func TestNames(t *testing.T) {
	for status, want := range map[Status]string{
		Success: "success", LocalLength: "local length error", LocalOperation: "local QP operation error",
		3: "local EE context operation error", LocalProtection: "local protection error",
		Flushed: "work request flushed", 6: "memory window bind error", BadResponse: "bad response",
		LocalAccess: "local access error", RemoteInvalid: "remote invalid request",
		RemoteAccess: "remote access error", RemoteOperation: "remote operation error",
		RetriesExceeded: "transport retries exceeded", NotReady: "receiver not ready, retries exceeded",
		14: "local RDD violation", 15: "remote invalid RD request", RemoteAborted: "remote aborted",
		17: "invalid EE context number", 18: "invalid EE context state", Fatal: "fatal error",
		ResponseTimeout: "response timeout", General: "general error",
	} {
		require.Equal(t, fmt.Sprintf("%s (status %d)", want, uint32(status)), status.String())
	}
	require.Equal(t, "transport retries exceeded (status 12)", RetriesExceeded.String())
	require.Len(t, statuses, int(General)+1)
	require.Equal(t, "unknown error (status 22)", (General + 1).String())
	require.Equal(t, "unknown error (status 4294967295)", Status(1<<32-1).String())

	for kind, want := range map[EventKind]string{
		CompletionsFailed: "completion queue error", PairFatal: "QP fatal error", PairRequest: "QP request error",
		PairAccess: "QP access error", 4: "communication established", 5: "send queue drained", 6: "path migrated",
		7: "path migration failed", DeviceFatal: "device fatal error", PortActive: "port active",
		PortError: "port error", LIDChange: "LID change", 12: "P_Key change", 13: "subnet manager change",
		ReceivesFailed: "shared receive queue error", 15: "shared receive queue limit",
		16: "last receive of the QP reached", 17: "client reregistration", GIDChange: "GID change",
	} {
		require.Equal(t, fmt.Sprintf("%s (event %d)", want, int(kind)), kind.String())
	}
	require.Equal(t, "port error (event 10)", PortError.String())
	require.Len(t, events, int(GIDChange)+1)
	for _, kind := range []EventKind{-1, GIDChange + 1, 1 << 40} {
		require.Contains(t, kind.String(), "unknown event")
	}

	for kind, want := range map[GIDKind]string{InfiniBand: "IB", RoCEv1: "RoCE v1", RoCEv2: "RoCE v2"} {
		require.Equal(t, want, kind.String())
	}
}

// TestAddr: what is mapped is an address of IPv4.
func TestAddr(t *testing.T) {
	mapped := GID{Value: [16]byte{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: 7}}
	require.Equal(t, "192.0.2.7", mapped.Addr().String())
	require.Equal(t, "fe80::1", GID{Value: [16]byte{0: 0xfe, 1: 0x80, 15: 1}}.Addr().String())
}
