package netlab_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

var userFlag = flag.String("hosts.user", "", "FOLDER/RANK: be a rank of TestUserNamespaces")

// TestRankOfUser is a process of TestUserNamespaces.
func TestRankOfUser(t *testing.T) {
	if *userFlag == "" {
		return // it runs as a process of TestUserNamespaces only
	}
	folder, number := ranked(t, *userFlag)
	node, err := ccl.NewNode(ccl.NodeOptions{SocketIfname: "lo"})
	require.NoError(t, err)
	defer node.Close()
	e, err := node.Open(ccl.Config{Rank: number, Size: 2, Options: ccl.GroupOptions{Debug: "INFO"}})
	require.NoError(t, err)
	tell(t, filepath.Join(folder, fmt.Sprint("address", number)), e.Address())
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	addresses := make([][]byte, 2)
	for n := range addresses {
		addresses[n] = (&rank{ctx: ctx}).hear(t, filepath.Join(folder, fmt.Sprint("address", n)))
	}
	c, err := e.Join(ctx, addresses)
	require.NoError(t, err)
	fmt.Printf("rank %d: %s\n", number, c.Routes())
	data := []float32{float32(1 + number)}
	require.NoError(t, ccl.AllReduce(ctx, c, data, data, ccl.Sum))
	require.Equal(t, []float32{3}, data)
	require.NoError(t, c.Close())
}

// TestUserNamespaces has ranks of one host, each in a user namespace of its own, as in containers
// without root that have the network of the host. Who is the same user outside shares memory;
// others have agreed on TCP before they connect.
func TestUserNamespaces(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make user namespaces with other users")
	}
	for _, tt := range []struct {
		name    string
		outside [2]int
		says    string
	}{
		{"two users", [2]int{100000, 200000}, "by tcp"},
		{"one user", [2]int{100000, 100000}, "by shm"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			require.NoError(t, os.Chmod(folder, 0o777))
			require.NoError(t, os.Chmod(filepath.Dir(folder), 0o755))
			var said [2]string
			var group sync.WaitGroup
			for n, user := range tt.outside {
				file := fmt.Sprintf("%s/%d", folder, n)
				cmd := exec.Command("/proc/self/exe", "-test.run", "^TestRankOfUser$", "-hosts.user", file)
				maps := []syscall.SysProcIDMap{{ContainerID: 0, HostID: user, Size: 1}}
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: maps,
					GidMappings: maps, Credential: &syscall.Credential{NoSetGroups: true}, Pdeathsig: syscall.SIGKILL}
				group.Go(func() {
					out, err := cmd.CombinedOutput()
					said[n] = fmt.Sprintf("%s%v", out, err)
				})
			}
			group.Wait()
			for n := range said {
				require.Contains(t, said[n], fmt.Sprintf("rank %d: 1 %s", n, tt.says))
				require.Contains(t, said[n], "<nil>")
				if tt.says == "by tcp" {
					require.Contains(t, said[n], "they belong to another user")
				}
			}
		})
	}
}
