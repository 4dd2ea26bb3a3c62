package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/member"
)

func serve(t *testing.T) *Server {
	t.Helper()
	s, err := Serve("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { s.Shutdown(0) })
	return s
}

func dial(t *testing.T, s *Server) *Client {
	t.Helper()
	c, err := Dial(t.Context(), s.Address(), "/p/")
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestRequests makes each kind of request, and looks at what another client sees of it.
func TestRequests(t *testing.T) {
	s := serve(t)
	c := dial(t, s)
	do := func(r member.Request) member.Answer {
		a, err := c.carryOut(r)
		require.NoError(t, err)
		return a
	}
	read := func(keys ...string) (texts []string) {
		for _, value := range do(member.Request{Op: member.Read, Keys: keys}).Values {
			texts = append(texts, string(value))
		}
		return texts
	}
	check := func(keys ...string) int64 { return do(member.Request{Op: member.Check, Keys: keys}).Number }
	one := []string{"n"}
	require.EqualValues(t, 0, check("n"))
	require.EqualValues(t, 3, do(member.Request{Op: member.Add, Keys: one, Number: 3}).Number)
	require.EqualValues(t, 1, do(member.Request{Op: member.Add, Keys: one, Number: -2}).Number)
	require.EqualValues(t, 1, check("n"))
	require.EqualValues(t, 0, check("n", "a"))
	do(member.Request{Op: member.Set, Keys: []string{"a"}, Value: []byte("first\x00\n")})
	do(member.Request{Op: member.Set, Keys: []string{"a"}, Value: []byte("second")})
	require.EqualValues(t, 1, check("n", "a"))
	require.Equal(t, []string{"second", "1"}, read("a", "n"))
	for _, mine := range []string{"mine", "theirs"} {
		a := do(member.Request{Op: member.Swap, Keys: []string{"v"}, Value: []byte(mine)})
		require.Equal(t, "mine", string(a.Values[0]))
	}
	require.Equal(t, []string{"mine"}, read("v"))
	require.Equal(t, map[string]string{"/p/n": "1", "/p/a": "second", "/p/v": "mine"}, contents(s))

	var many []string // in more than one request
	for i := range 3*atOnce + 1 {
		key := fmt.Sprint("many/", i)
		many = append(many, key)
		do(member.Request{Op: member.Set, Keys: []string{key}, Value: []byte(key)})
	}
	require.Equal(t, many, read(many...))
	_, err := c.carryOut(member.Request{Op: member.Over})
	require.ErrorContains(t, err, "a meeting asks for")
}

func contents(s *Server) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, bytes := map[string]string{}, 0
	for key, value := range s.values {
		all[key] = string(value)
		bytes += len(key) + len(value)
	}
	if bytes != s.bytes {
		panic(fmt.Sprintf("%d bytes, counted as %d", bytes, s.bytes))
	}
	return all
}

// TestAtOneMoment has many clients add and swap at the same time.
func TestAtOneMoment(t *testing.T) {
	s := serve(t)
	var group sync.WaitGroup
	won := make([]string, 16)
	for i := range won {
		c := dial(t, s)
		group.Go(func() {
			for range 50 {
				_, err := c.carryOut(member.Request{Op: member.Add, Keys: []string{"n"}, Number: 2})
				require.NoError(t, err)
			}
			a, err := c.carryOut(member.Request{Op: member.Swap, Keys: []string{"v"}, Value: fmt.Append(nil, i)})
			require.NoError(t, err)
			won[i] = string(a.Values[0])
		})
	}
	group.Wait()
	require.Equal(t, "1600", contents(s)["/p/n"])
	for _, each := range won {
		require.Equal(t, won[0], each)
	}
}

// request builds what a client might send.
func request(parts ...any) []byte {
	p := binary.LittleEndian.AppendUint32([]byte{byte(validate)}, magic)
	for _, part := range parts {
		switch v := part.(type) {
		case query:
			p = append(p, byte(v))
		case int:
			p = binary.LittleEndian.AppendUint64(p, uint64(v))
		case string:
			p = append(binary.LittleEndian.AppendUint64(p, uint64(len(v))), v...)
		}
	}
	return p
}

// TestStrangers sends what no client does: the connection ends, and the store goes on.
func TestStrangers(t *testing.T) {
	s := serve(t)
	c := dial(t, s)
	for _, op := range []member.Op{member.Set, member.Check} { // a Set alone has no answer
		_, err := c.carryOut(member.Request{Op: op, Keys: []string{"a"}, Value: []byte("x")})
		require.NoError(t, err)
	}
	for name, text := range map[string][]byte{
		"http":           []byte("GET / HTTP/1.1\r\n\r\n"),
		"other number":   {0, 1, 2, 3, 4},
		"unknown":        request(query(77)),
		"long key":       request(set, mostKey+1),
		"longer key":     request(add, -1),
		"long value":     request(set, "k", mostValue+1),
		"many keys":      request(check, mostKeys+1),
		"no number":      request(add, "/p/a", 1),
		"a second hello": request(validate),
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", s.Address())
			require.NoError(t, err)
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			conn.Write(text)
			answer, err := io.ReadAll(conn)
			if err != nil { // it had more to say than was read
				require.ErrorContains(t, err, "reset")
			}
			require.Empty(t, answer)
		})
	}
	require.Equal(t, map[string]string{"/p/a": "x"}, contents(s))
}

// TestRoom fills the store: a value for which there is no room is refused, and replacing one that
// is there by another is not.
func TestRoom(t *testing.T) {
	s := serve(t)
	c := dial(t, s)
	put := func(c *Client, key string) error {
		_, err := c.carryOut(member.Request{Op: member.Swap, Keys: []string{key}, Value: make([]byte, 100)})
		return err
	}
	require.NoError(t, put(c, "a"))
	s.mu.Lock()
	s.bytes += mostBytes - 200 // as if it were
	s.mu.Unlock()
	require.ErrorIs(t, put(c, "b"), io.EOF)
	require.NoError(t, put(dial(t, s), "a"))
	s.mu.Lock()
	s.bytes -= mostBytes - 200
	s.mu.Unlock()
	require.Len(t, contents(s), 1)
}

// TestShutdown has one client leave while the store waits for its clients.
func TestShutdown(t *testing.T) {
	for name, c := range map[string]struct{ clients, wait int }{"one stays": {2, 50}, "all leave": {1, 60_000}} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			clients := make([]*Client, c.clients)
			for i := range clients {
				clients[i] = dial(t, s)
				_, err := clients[i].carryOut(member.Request{Op: member.Check, Keys: []string{"a"}})
				require.NoError(t, err)
			}
			time.AfterFunc(10*time.Millisecond, func() { clients[0].Close() })
			begun, wait := time.Now(), time.Duration(c.wait)*time.Millisecond
			require.NoError(t, s.Shutdown(wait))
			require.Equal(t, c.clients > 1, time.Since(begun) >= wait)
			for _, left := range clients[1:] {
				_, err := left.carryOut(member.Request{Op: member.Check, Keys: []string{"a"}})
				require.Error(t, err)
			}
		})
	}
}

func config(rank, size int) member.Config {
	return member.Config{Name: "dp", Call: "this", Rank: rank, Size: size, Timeout: 20 * time.Second,
		Address: fmt.Append(nil, "address of ", rank), KeepsStore: rank == 0}
}

// meet has the ranks meet in a store that is served late, and returns what came of it, by rank.
func meet(t *testing.T, ranks []int, each func(rank int, cfg *member.Config) context.Context) map[int]error {
	t.Helper()
	s := serve(t)
	size := 3
	errs, mu := map[int]error{}, sync.Mutex{}
	var group sync.WaitGroup
	for _, rank := range ranks {
		cfg := config(rank, size)
		ctx := each(rank, &cfg)
		c := dial(t, s)
		group.Go(func() {
			all, err := c.Meet(ctx, cfg)
			c.Close()
			mu.Lock()
			defer mu.Unlock()
			if errs[rank] = err; err == nil {
				for rank := range size {
					require.Equal(t, fmt.Sprint("address of ", rank), string(all[rank]))
				}
			}
		})
	}
	group.Wait()
	return errs
}

func TestMeet(t *testing.T) {
	for rank, err := range meet(t, []int{0, 1, 2}, func(int, *member.Config) context.Context { return t.Context() }) {
		require.NoError(t, err, "rank %d", rank)
	}
}

// TestOneDoesNotCome has the time of one rank run out first: all say who has not come.
func TestOneDoesNotCome(t *testing.T) {
	errs := meet(t, []int{0, 2}, func(rank int, cfg *member.Config) context.Context {
		if rank == 2 {
			cfg.Timeout = time.Second
		}
		return t.Context()
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, fault.Timeout, "rank %d", rank)
		require.ErrorContains(t, err, "rank 1 (of 3) did not come to group dp within 1 s", "rank %d", rank)
		require.ErrorContains(t, err, "failed before the call of this;")
		require.ErrorContains(t, err, fmt.Sprintf("group dp, rank %d of 3: join:", rank))
	}
}

// TestOneGivesUp cancels the context of one rank: the others are told.
func TestOneGivesUp(t *testing.T) {
	errs := meet(t, []int{0, 2}, func(rank int, cfg *member.Config) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		t.Cleanup(func() { cancel(nil) })
		if rank == 2 {
			time.AfterFunc(100*time.Millisecond, func() { cancel(errors.New("the user is tired")) })
		}
		return ctx
	})
	for rank, err := range errs {
		require.ErrorContains(t, err, "its context ended: the user is tired", "rank %d", rank)
	}
	require.ErrorIs(t, errs[2], fault.Aborted)
}

// TestTheStoreEnds takes the store away while a rank waits.
func TestTheStoreEnds(t *testing.T) {
	s := serve(t)
	c := dial(t, s)
	time.AfterFunc(100*time.Millisecond, func() { s.Shutdown(0) })
	_, err := c.Meet(t.Context(), config(1, 2))
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, "is the process that serves it (rank 0, as a rule) alive?")
}

func TestNobodyServes(t *testing.T) {
	s := serve(t)
	at := s.Address()
	s.Shutdown(0)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Dial(ctx, at, "")
	require.ErrorContains(t, err, "cannot be reached")
	require.True(t, strings.Contains(err.Error(), at))
}

// FuzzAnswer has the store answer any bytes: it ends, and counts what it keeps.
func FuzzAnswer(f *testing.F) {
	f.Add(request(set, "k", "v", add, "n", 5, check, 1, "k", multiGet, 2, "k", "n", compareSet, "k", "v", "w")[5:])
	f.Add(request(add, "n", 1, add, "n", -1, set, "n", "x", add, "n", 1)[5:])
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &Server{values: map[string][]byte{}}
		wire := newStream(struct {
			io.Reader
			io.Writer
		}{strings.NewReader(string(text)), io.Discard})
		for wire.err == nil {
			s.answer(wire)
		}
		contents(s)
	})
}
