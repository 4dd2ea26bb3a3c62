package tcp

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

func TestLack(t *testing.T) {
	short := fmt.Errorf("accept: %w", syscall.EMFILE)
	var none *lack
	require.Nil(t, none.again(syscall.ECONNABORTED))
	require.NoError(t, none.fault("accept"))
	begun := none.again(short)
	require.NoError(t, begun.fault("accept"), "it may be over at once")
	begun.first = begun.first.Add(-lackSpan)
	require.Same(t, begun, begun.again(errors.New("something else")), "it goes on")
	lasting := begun.again(short)
	err := lasting.fault("accept")
	require.ErrorIs(t, err, fault.System)
	require.ErrorIs(t, err, syscall.EMFILE)
	require.Equal(t, fault.NoPeer, err.(*fault.Error).Peer)
	lasting.last = lasting.last.Add(-lackPause - time.Second)
	require.NoError(t, lasting.fault("accept"), "it is over")
	require.NoError(t, lasting.again(short).fault("accept"), "another one")
}
