package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl"
)

// terminal is a shell on a pseudo-terminal.
type terminal struct {
	keys *os.File
	mu   sync.Mutex
	text bytes.Buffer
}

// onTerminal starts a shell on a pseudo-terminal of its own.
func onTerminal(t *testing.T, env []string, shell ...string) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 200}))
	require.NoError(t, unix.SetNonblock(fd, true)) // so that Close ends a read
	screen := &terminal{keys: os.NewFile(uintptr(fd), "ptmx")}
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	cmd := exec.Command(shell[0], shell[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, tty, tty, tty
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: unix.SIGKILL}
	require.NoError(t, cmd.Start())
	require.NoError(t, tty.Close())
	var reading sync.WaitGroup
	reading.Go(func() {
		piece := make([]byte, 4096)
		for {
			n, err := screen.keys.Read(piece)
			screen.mu.Lock()
			screen.text.Write(piece[:n])
			screen.mu.Unlock()
			if err != nil {
				return
			}
			// What a shell asks of its terminal: its kind, and where the cursor is.
			if bytes.Contains(piece[:n], []byte("\x1b[c")) || bytes.Contains(piece[:n], []byte("\x1b[0c")) {
				screen.keys.WriteString("\x1b[?1;2c")
			}
			if bytes.Contains(piece[:n], []byte("\x1b[6n")) {
				screen.keys.WriteString("\x1b[1;1R")
			}
		}
	})
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		screen.keys.Close()
		reading.Wait()
	})
	return screen
}

// shows waits until all words are on the screen, and forgets what was there.
func (s *terminal) shows(t *testing.T, words ...string) {
	t.Helper()
	seen := func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.text.String()
	}
	missing := func() (all []string) {
		text := seen()
		for _, word := range words {
			if !strings.Contains(text, word) {
				all = append(all, word)
			}
		}
		return all
	}
	for end := time.Now().Add(20 * time.Second); missing() != nil; time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "%q is not on the screen: %q", missing(), seen())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Reset()
}

func (s *terminal) press(keys string) { s.keys.WriteString(keys) }

// A shell completes commands, flags and values as somebody types them.
func TestCompletion(t *testing.T) {
	folder := t.TempDir()
	build, err := exec.Command("go", "build", "-o", filepath.Join(folder, "goccl"), ".").CombinedOutput()
	require.NoError(t, err, "%s", build)
	env := []string{"PATH=" + folder + ":" + os.Getenv("PATH"), "HOME=" + folder, "TERM=vt100", "LC_ALL=C.UTF-8"}
	for _, shell := range []struct {
		command []string
		load    string
		list    string // keys that list what there is
	}{
		{[]string{"bash", "--norc", "--noprofile", "-i"}, "source <(goccl completion bash)", "\t\t"},
		{[]string{"zsh", "-f", "-i"}, "autoload -U compinit; compinit -u -D; source <(goccl completion zsh)", "\t"},
		{[]string{"fish", "--no-config", "-i"}, "goccl completion fish | source", "\t"},
	} {
		t.Run(shell.command[0], func(t *testing.T) {
			if _, err := exec.LookPath(shell.command[0]); err != nil {
				t.Skipf("%v", err)
			}
			s := onTerminal(t, env, shell.command...)
			s.press(shell.load + "; echo load''ed\r")
			s.shows(t, "loaded")
			s.press("goccl " + shell.list)
			s.shows(t, "bench", "verify", "doctor", "completion")
			s.press("\x15") // ctrl-U deletes the line
			s.press("goccl vers\t\r")
			s.shows(t, ccl.Version)
			s.press("goccl sim --op barr\t --algo disse\t --si\t 0\r")
			s.shows(t, "# barrier on 8 ranks", " dissemination ")
		})
	}
}
