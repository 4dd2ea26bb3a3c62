package ccl

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// door keeps the newcomers that have knocked at this process (transport.Door), until a group of the
// name that they ask for grows.
type door struct {
	admits sync.Once

	mu       sync.Mutex
	visitors []*visitor // the oldest first
	hosts    []*reception
}

// visitor is a newcomer that waits.
type visitor struct {
	conn     net.Conn
	request  request
	answered bool // guarded by the door's mu
}

// request is what a newcomer says.
type request struct {
	Group   string
	Address []byte // that of its Endpoint
}

// invitation answers it.
type invitation struct {
	Refused   string   // why it cannot join; "" if it can
	Name      string   // of the group
	Former    int      // ranks that the group has had
	Rank      int      // of the newcomer
	Session   [16]byte // of the links over which the ranks agree
	Addresses [][]byte // of all
}

const (
	requestSpan  = 5 * time.Second // for what one side says
	mostVisitors = 1024
	mostRequest  = 2 * MaxAddress
	mostInvites  = 256 << 20
)

// open has the visitors of a fabric come in.
func (d *door) open(fabric transport.Door) { d.admits.Do(func() { fabric.Admit(d.visit) }) }

// visit serves a visitor until it leaves.
func (d *door) visit(conn net.Conn) {
	defer conn.Close()
	v := &visitor{conn: conn}
	conn.SetDeadline(time.Now().Add(requestSpan))
	if readText(conn, mostRequest, &v.request) != nil || conn.SetDeadline(time.Time{}) != nil {
		return
	}
	if !d.add(v) {
		v.say(invitation{Refused: "too many others wait at this process"})
		return
	}
	conn.Read(make([]byte, 1)) // until it leaves: it says nothing more
	d.remove(v)
}

func (d *door) add(v *visitor) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.visitors) == mostVisitors {
		return false
	}
	d.visitors = append(d.visitors, v)
	for _, r := range d.hosts {
		r.note(v, false)
	}
	return true
}

func (d *door) remove(v *visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.visitors = slices.DeleteFunc(d.visitors, func(other *visitor) bool { return other == v })
	for _, r := range d.hosts {
		r.note(v, true)
	}
}

// reception tells a group that grows who comes, and who leaves again.
type reception struct {
	door   *door
	group  string
	notify func()

	// Guarded by the door's mu.
	news []arrival
	came []*visitor
}

type arrival struct {
	*visitor
	left bool
}

// receive begins a reception. Those who wait have come. notify is called after a change.
func (d *door) receive(group string, notify func()) *reception {
	r := &reception{door: d, group: group, notify: notify}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts = append(d.hosts, r)
	for _, v := range d.visitors {
		r.note(v, false)
	}
	return r
}

// note takes an arrival. The lock is held.
func (r *reception) note(v *visitor, left bool) {
	if v.request.Group == r.group && !v.answered {
		r.news = append(r.news, arrival{v, left})
		r.notify()
	}
}

// all returns what has happened since the last call.
func (r *reception) all() []arrival {
	r.door.mu.Lock()
	defer r.door.mu.Unlock()
	news := r.news
	r.news = nil
	return news
}

// take adds a visitor to those that invite looks for.
func (r *reception) take(v *visitor) { r.came = append(r.came, v) }

// invite answers the visitor with an offer, if it has come to this process. It does not wait.
func (r *reception) invite(offer []byte, i invitation) {
	at := slices.IndexFunc(r.came, func(v *visitor) bool { return string(v.request.Address) == string(offer) })
	if at >= 0 {
		r.answer(r.came[at], i)
	}
}

func (r *reception) answer(v *visitor, i invitation) {
	r.door.mu.Lock()
	v.answered = true
	r.door.mu.Unlock()
	go v.say(i)
}

// close ends the reception. Who was not answered waits for the next one.
func (r *reception) close() {
	r.door.mu.Lock()
	defer r.door.mu.Unlock()
	r.door.hosts = slices.DeleteFunc(r.door.hosts, func(other *reception) bool { return other == r })
}

// say writes an answer. The visitor closes the connection when it has read it.
func (v *visitor) say(i invitation) {
	v.conn.SetWriteDeadline(time.Now().Add(requestSpan))
	if writeText(v.conn, i) != nil {
		v.conn.Close()
	}
}

// writeText and readText exchange values: 4 bytes with the length of a text, and the text.
func writeText(to io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "text")
	}
	_, err = to.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

func readText(from io.Reader, most uint32, value any) error {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > most {
		return fault.New(fault.Internal, "a text of %d bytes, the limit is %d", size, most)
	}
	text, err := io.ReadAll(io.LimitReader(from, int64(size)))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, value)
}
