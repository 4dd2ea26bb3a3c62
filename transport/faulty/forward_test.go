package faulty

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/stretchr/testify/require"
)

// mostOptional is how many optional interfaces the contract may have.
const mostOptional = 5

var (
	required = map[string]reflect.Type{
		"Fabric":  reflect.TypeFor[transport.Fabric](),
		"Link":    reflect.TypeFor[transport.Link](),
		"Channel": reflect.TypeFor[transport.Channel](),
	}
	optional = map[string]reflect.Type{
		"Poller":    reflect.TypeFor[transport.Poller](),
		"Registrar": reflect.TypeFor[transport.Registrar](),
		"Lender":    reflect.TypeFor[transport.Lender](),
		"Gatherer":  reflect.TypeFor[transport.Gatherer](),
		"Door":      reflect.TypeFor[transport.Door](),
	}
)

// TestContract holds these tests to all interfaces of the contract.
func TestContract(t *testing.T) {
	require.LessOrEqual(t, len(optional), mostOptional)
	files, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	var found []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.TypeSpec); ok && s.Name.IsExported() {
				if _, ok := s.Type.(*ast.InterfaceType); ok {
					found = append(found, s.Name.Name)
				}
			}
			return true
		})
	}
	known := slices.AppendSeq(slices.Collect(maps.Keys(required)), maps.Keys(optional))
	require.ElementsMatch(t, known, found, "interfaces of package transport")
}

// TestForwards wraps fabrics with every choice of the optional parts. What is wrapped has the same
// parts, and each method reaches the inner one and brings back its answer.
func TestForwards(t *testing.T) {
	for _, yes := range []bool{true, false} {
		c := &calls{yes: yes}
		f, l, ch := &innerFabric{calls: c}, &innerLink{calls: c}, &innerChannel{c}
		p, r, d, g, k := &innerPoller{c}, &innerRegistrar{c}, &innerLender{c}, &innerGatherer{c}, &innerDoor{c}
		type (
			polls        struct{ *innerPoller }
			registers    struct{ *innerRegistrar }
			admits       struct{ *innerDoor }
			plainFabric  struct{ *innerFabric }
			plainLink    struct{ *innerLink }
			plainChannel struct{ *innerChannel }
		)
		fabrics := []transport.Fabric{
			plainFabric{f},
			struct {
				plainFabric
				polls
			}{plainFabric{f}, polls{p}},
			struct {
				plainFabric
				registers
			}{plainFabric{f}, registers{r}},
			struct {
				plainFabric
				polls
				registers
			}{plainFabric{f}, polls{p}, registers{r}},
			struct {
				plainFabric
				admits
			}{plainFabric{f}, admits{k}},
			struct {
				plainFabric
				polls
				admits
			}{plainFabric{f}, polls{p}, admits{k}},
			struct {
				plainFabric
				registers
				admits
			}{plainFabric{f}, registers{r}, admits{k}},
			struct {
				plainFabric
				polls
				registers
				admits
			}{plainFabric{f}, polls{p}, registers{r}, admits{k}},
		}
		links := []transport.Link{plainLink{l}, struct {
			plainLink
			*innerLender
		}{plainLink{l}, d}}
		channels := []transport.Channel{plainChannel{ch}, struct {
			plainChannel
			*innerGatherer
		}{plainChannel{ch}, g}}
		for _, fabric := range fabrics {
			for _, f.link = range links {
				for _, l.channel = range channels {
					outer := NewNetwork().Wrap(fabric, park.NewDoorbell())
					link, err := outer.Connect(t.Context(), nil, transport.Session{Peer: 1, Channels: 1})
					require.NoError(t, err)
					c.check(t, required["Fabric"], fabric, outer)
					c.check(t, required["Channel"], l.channel, link.Channel(0))
					c.check(t, required["Link"], f.link, link)
					require.Equal(t, link.Channel(0), link.Channel(0))
				}
			}
		}
	}
}

// calls notes the calls of inner parts, and has the answers of all.
type calls struct {
	yes  bool // what is true or false is that
	made []string
	with [][]any
}

// instead lists the methods that are made of other ones.
var instead = map[string]string{"Commit": "Publish", "Peek": "Look", "Release": "Consume", "Link.Close": "Leave"}

// check compares a part with what is around it.
func (c *calls) check(t *testing.T, of reflect.Type, inner, outer any) {
	t.Helper()
	all := []reflect.Type{of}
	for name, part := range optional {
		has := reflect.TypeOf(inner).Implements(part)
		require.Equal(t, has, reflect.TypeOf(outer).Implements(part), "%s is a %s", of.Name(), name)
		if has {
			all = append(all, part)
		}
	}
	for _, part := range all {
		for i := range part.NumMethod() {
			m := part.Method(i)
			if m.Name == "Connect" || m.Name == "Channel" {
				continue // they bring what is checked by itself
			}
			var in []reflect.Value
			var with []any
			for k := range m.Type.NumIn() {
				in = append(in, c.sample(m.Type.In(k)))
				with = append(with, value(in[k].Interface()))
			}
			c.made, c.with = nil, nil
			out := reflect.ValueOf(outer).MethodByName(m.Name).Call(in)
			name := m.Name
			for _, key := range []string{m.Name, part.Name() + "." + m.Name} {
				if other, ok := instead[key]; ok {
					name = other
				}
			}
			require.NotEmpty(t, c.made, "%s.%s is not forwarded", part.Name(), m.Name)
			require.Equal(t, name, c.made[0], "%s.%s", part.Name(), m.Name)
			if name != m.Name {
				continue
			}
			require.Equal(t, [][]any{with}, c.with, "%s.%s", part.Name(), m.Name)
			for k, got := range out {
				require.Equal(t, c.sample(m.Type.Out(k)).Interface(), got.Interface(), "%s.%s", part.Name(), m.Name)
			}
		}
	}
}

var errSample = errors.New("an answer")

// sample returns a value of a type that is nowhere zero, but for truth.
func (c *calls) sample(of reflect.Type) reflect.Value {
	v := reflect.New(of).Elem()
	switch {
	case of == reflect.TypeFor[error]():
		v.Set(reflect.ValueOf(errSample))
	case of == reflect.TypeFor[context.Context]():
		v.Set(reflect.ValueOf(context.Background()))
	case of == reflect.TypeFor[net.Conn]():
		v.Set(reflect.ValueOf(net.Conn(&net.TCPConn{})))
	case of == reflect.TypeFor[func(net.Conn)]():
		v.Set(reflect.ValueOf(c.visit))
	case of == reflect.TypeFor[netip.Addr]():
		v.Set(reflect.ValueOf(netip.IPv6Loopback()))
	case of.Kind() == reflect.Bool:
		v.SetBool(c.yes)
	case of.Kind() == reflect.String:
		v.SetString("text")
	case v.CanInt():
		v.SetInt(3)
	case v.CanUint():
		v.SetUint(4)
	case of.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, c.sample(of.Elem())))
	case of.Kind() == reflect.Array:
		for i := range v.Len() {
			v.Index(i).Set(c.sample(of.Elem()))
		}
	case of.Kind() == reflect.Struct:
		for i := range v.NumField() {
			v.Field(i).Set(c.sample(of.Field(i).Type))
		}
	case of.Kind() == reflect.Pointer:
		v.Set(reflect.New(of.Elem()))
		v.Elem().Set(c.sample(of.Elem()))
	default:
		panic(fmt.Sprintf("no sample of %v", of))
	}
	return v
}

func (c *calls) note(name string, with ...any) {
	c.made = append(c.made, name)
	for i := range with {
		with[i] = value(with[i])
	}
	c.with = append(c.with, append([]any(nil), with...))
}

func (*calls) visit(net.Conn) {}

// value returns what is compared of an argument: of a function only where it is.
func value(of any) any {
	if v := reflect.ValueOf(of); v.Kind() == reflect.Func {
		return v.Pointer()
	}
	return of
}

// answer notes a call, and returns a sample.
func answer[T any](c *calls, name string, with ...any) T {
	c.note(name, with...)
	return c.sample(reflect.TypeFor[T]()).Interface().(T)
}

type innerFabric struct {
	*calls
	link transport.Link
}

func (f *innerFabric) Name() string             { return answer[string](f.calls, "Name") }
func (f *innerFabric) Address() []byte          { return answer[[]byte](f.calls, "Address") }
func (f *innerFabric) Reaches(peer []byte) bool { return answer[bool](f.calls, "Reaches", peer) }
func (f *innerFabric) SharesMemory() bool       { return answer[bool](f.calls, "SharesMemory") }
func (f *innerFabric) Locate(peer []byte) []netip.Addr {
	return answer[[]netip.Addr](f.calls, "Locate", peer)
}
func (f *innerFabric) Close() error { return answer[error](f.calls, "Close") }
func (f *innerFabric) Connect(context.Context, []byte, transport.Session) (transport.Link, error) {
	return f.link, nil
}

type innerPoller struct{ *calls }

func (p *innerPoller) Poll() bool { return answer[bool](p.calls, "Poll") }
func (p *innerPoller) Arm()       { p.note("Arm") }
func (p *innerPoller) Leave()     { p.note("Leave") }

type innerRegistrar struct{ *calls }

func (r *innerRegistrar) Pin(memory []byte) error   { return answer[error](r.calls, "Pin", memory) }
func (r *innerRegistrar) Unpin(memory []byte) error { return answer[error](r.calls, "Unpin", memory) }

type innerDoor struct{ *calls }

func (d *innerDoor) Admit(visit func(net.Conn)) { d.note("Admit", visit) }
func (d *innerDoor) Knock(ctx context.Context, peer []byte) (net.Conn, error) {
	return answer[net.Conn](d.calls, "Knock", ctx, peer), errSample
}

type innerLink struct {
	*calls
	channel transport.Channel
}

func (l *innerLink) Channel(int) transport.Channel { return l.channel }
func (l *innerLink) Open() bool                    { return answer[bool](l.calls, "Open") }
func (l *innerLink) State() transport.LinkState    { return answer[transport.LinkState](l.calls, "State") }
func (l *innerLink) Flushed() bool                 { return answer[bool](l.calls, "Flushed") }
func (l *innerLink) Tell(message []byte) bool      { return answer[bool](l.calls, "Tell", message) }
func (l *innerLink) Err() error                    { return answer[error](l.calls, "Err") }
func (l *innerLink) Close() error                  { return answer[error](l.calls, "Close") }
func (l *innerLink) Leave(why []byte) error        { return answer[error](l.calls, "Leave", why) }

type innerLender struct{ *calls }

func (l *innerLender) Window() []byte { return answer[[]byte](l.calls, "Window") }
func (l *innerLender) Notify()        { l.note("Notify") }
func (l *innerLender) Arena() []byte  { return answer[[]byte](l.calls, "Arena") }
func (l *innerLender) Shared() ([]byte, []int) {
	l.note("Shared")
	return l.sample(reflect.TypeFor[[]byte]()).Bytes(), l.sample(reflect.TypeFor[[]int]()).Interface().([]int)
}

type innerChannel struct{ *calls }

func (c *innerChannel) Reserve(n int) []byte                 { return answer[[]byte](c.calls, "Reserve", n) }
func (c *innerChannel) Publish(n int, m *transport.Meta)     { c.note("Publish", n, m) }
func (c *innerChannel) Commit(n int, m *transport.Meta)      { c.note("Commit", n, m) }
func (c *innerChannel) Consume()                             { c.note("Consume") }
func (c *innerChannel) Release()                             { c.note("Release") }
func (c *innerChannel) Flush()                               { c.note("Flush") }
func (c *innerChannel) Peek() ([]byte, transport.Meta, bool) { panic("Look is enough") }
func (c *innerChannel) Look() ([]byte, *transport.Meta) {
	return []byte{4}, answer[*transport.Meta](c.calls, "Look")
}

type innerGatherer struct{ *calls }

func (g *innerGatherer) Gather(memory []byte, m *transport.Meta) (int, bool) {
	return 3, answer[bool](g.calls, "Gather", memory, m)
}
func (g *innerGatherer) Sent() bool     { return answer[bool](g.calls, "Sent") }
func (g *innerGatherer) Withdraw() bool { return answer[bool](g.calls, "Withdraw") }

// TestGatherFaults gathers with the faults of credit, and then over a link that is cut.
func TestGatherFaults(t *testing.T) {
	const hunger = 20 * time.Millisecond
	c := &calls{yes: true}
	inner := &innerFabric{c, &innerLink{c, struct {
		*innerChannel
		*innerGatherer
	}{&innerChannel{c}, &innerGatherer{c}}}}
	n := NewNetwork(Fault{From: 0, To: 1, Channel: 0, Fragment: 1, Short: 64},
		Fault{From: 0, To: 1, Channel: 0, Fragment: 2, Starve: hunger})
	link, err := n.Wrap(inner, park.NewDoorbell()).Connect(t.Context(), nil, transport.Session{Peer: 1, Channels: 1})
	require.NoError(t, err)
	g, memory, begin := link.Channel(0).(transport.Gatherer), make([]byte, 1000), time.Now()
	for i, want := range []int{1000, 64, 1000, 1000} {
		sent, ok := g.Gather(memory, &transport.Meta{})
		require.True(t, ok)
		for sent == 0 {
			require.Equal(t, 2, i, "fragment %d starves", i)
			time.Sleep(time.Millisecond)
			sent, ok = g.Gather(memory, &transport.Meta{})
			require.True(t, ok)
		}
		require.Equal(t, "Gather", c.made[len(c.made)-1])
		require.Len(t, c.with[len(c.with)-1][0], want, "fragment %d", i)
		require.Equal(t, i >= 2, time.Since(begin) >= hunger)
	}
	n.Cut(0, 1)
	c.yes = false
	sent, ok := g.Gather(memory, &transport.Meta{})
	require.False(t, ok)
	require.Zero(t, sent)
	require.False(t, g.Sent())
	require.Equal(t, []string{"Sent", "Withdraw"}, c.made[len(c.made)-2:], "the peer takes nothing more")
	c.yes = true
	require.True(t, g.Sent())
}
