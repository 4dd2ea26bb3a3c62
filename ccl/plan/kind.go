package plan

import "fmt"

// Kind is what a step does.
type Kind uint8

const (
	Copy Kind = iota
	Reduce
	Send
	Recv
	RecvReduce
	Put
	Get
	GetReduce
	Signal
	Wait
	Packet
	Loop
	numKinds
)

// Traits says what the steps of a kind do, and which fields of them mean something.
type Traits struct {
	Name string // in the text of a plan
	Need Need   // what a plan with such a step needs of its group

	Writes bool // it has a Dst
	Reads  bool // it has a source
	Many   bool // it has two sources or more
	From   bool // each source has a rank, whose window it is in if that is not this rank
	Peer   bool // it has a Peer
	Empty  bool // its Refs may have no chunks
	Final  bool // its Dst may be fully reduced by it

	Sends    bool // a message to Peer; Chan is its channel
	Receives bool // a message from Peer, for which it waits; Chan is its channel
	Puts     bool // Dst is in the window of Peer
	Gets     bool // it reads windows of other ranks: the one of Peer, or those of From
	Signals  bool // it gives Peer a signal; Chan is its flag
	Waits    bool // for a signal from Peer; Chan is its flag
	Reduces  bool // it combines operands
}

// Kinds has the traits of each kind. What reads plans asks it. It names kinds in one place at most:
// where it does what a step says.
var Kinds = [numKinds]Traits{
	Copy:   {Name: "copy", Writes: true, Reads: true, Final: true},
	Reduce: {Name: "reduce", Writes: true, Reads: true, Many: true, Reduces: true, Final: true},
	Send:   {Name: "send", Need: Messages, Reads: true, Peer: true, Sends: true, Empty: true},
	Recv:   {Name: "recv", Need: Messages, Writes: true, Peer: true, Receives: true, Empty: true},
	RecvReduce: {Name: "recvreduce", Need: Messages, Writes: true, Reads: true, Peer: true, Receives: true,
		Reduces: true, Final: true},
	Put: {Name: "put", Need: Puts, Writes: true, Reads: true, Peer: true, Puts: true},
	Get: {Name: "get", Need: Gets, Writes: true, Reads: true, Peer: true, Gets: true, Final: true},
	GetReduce: {Name: "getreduce", Need: Gets, Writes: true, Reads: true, Many: true, From: true, Gets: true,
		Reduces: true, Final: true},
	Signal: {Name: "signal", Need: Puts, Peer: true, Signals: true},
	Wait:   {Name: "wait", Need: Puts, Peer: true, Waits: true},
	Packet: {Name: "packet", Need: Puts, Writes: true, Reads: true, Peer: true, Puts: true, Signals: true},
	Loop:   {Name: "loop"},
}

// Message reports whether the steps are one side of a message, on a channel.
func (t *Traits) Message() bool { return t.Sends || t.Receives }

// Flagged reports whether the steps are one side of a signal, by a flag.
func (t *Traits) Flagged() bool { return t.Signals || t.Waits }

// OnlySignals reports whether the steps give a signal and move nothing.
func (t *Traits) OnlySignals() bool { return t.Signals && !t.Puts }

// Awaits reports whether the steps wait for something that Peer does.
func (t *Traits) Awaits() bool { return t.Receives || t.Waits }

// Outward reports whether something goes from this rank to Peer.
func (t *Traits) Outward() bool { return t.Sends || t.Puts || t.Signals }

// Traits returns the traits of a valid kind.
func (k Kind) Traits() *Traits { return &Kinds[k] }

func (k Kind) String() string {
	if k >= numKinds {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return Kinds[k].Name
}

func kindNames() (names []string) {
	for k := range Kinds {
		names = append(names, Kinds[k].Name)
	}
	return names
}

func parseKind(word string) (Kind, bool) {
	for k := range Kinds {
		if Kinds[k].Name == word {
			return Kind(k), true
		}
	}
	return 0, false
}
