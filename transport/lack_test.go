package transport

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
	var none *Lack
	require.Nil(t, none.Again(syscall.ECONNABORTED))
	require.NoError(t, none.Fault("accept"))
	begun := none.Again(short)
	require.NoError(t, begun.Fault("accept"), "it may be over at once")
	begun.first = begun.first.Add(-lackSpan)
	require.Same(t, begun, begun.Again(errors.New("something else")), "it goes on")
	lasting := begun.Again(short)
	err := lasting.Fault("accept")
	require.ErrorIs(t, err, fault.System)
	require.ErrorIs(t, err, syscall.EMFILE)
	require.Equal(t, fault.NoPeer, err.(*fault.Error).Peer)
	lasting.last = lasting.last.Add(-lackPause - time.Second)
	require.NoError(t, lasting.Fault("accept"), "it is over")
	require.NoError(t, lasting.Again(short).Fault("accept"), "another one")
}
