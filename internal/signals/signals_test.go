package signals

import (
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWatch(t *testing.T) {
	signal.Ignore(syscall.SIGUSR1)
	watching, err := First(syscall.SIGUSR1, func() { t.Error("an ignored signal") })
	require.NoError(t, err)
	require.False(t, watching)
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGUSR1))

	came := make(chan bool)
	watching, err = First(syscall.SIGUSR2, func() { came <- true })
	require.NoError(t, err)
	require.True(t, watching)
	watching, err = First(syscall.SIGUSR1, nil)
	require.NoError(t, err)
	require.False(t, watching, "there is one already")
	for range 2 {
		require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGUSR2))
		select {
		case <-came:
		case <-time.After(time.Minute):
			t.Fatal("no signal")
		}
	}
}
