package store

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// A request begins with a byte that says what it is. Numbers are little-endian; a key or a value
// follows its length, of 8 bytes.
type query byte

const (
	validate   query = 0  // a number that every client sends first; no answer
	set        query = 1  // a key and a value; no answer
	compareSet query = 2  // a key, what is expected there, a value; answer: what is there then
	add        query = 4  // a key, a number; answer: the sum
	check      query = 5  // keys; answer: ready or notReady
	multiGet   query = 10 // keys; answer: their values
)

const magic = 0x3C85F7CE // that validate sends

// Answers to check.
const (
	ready    = 0
	notReady = 1
)

// Limits of what this process takes from another.
const (
	mostKey   = 4 << 10
	mostKeys  = 1 << 17 // in one request
	mostValue = 1 << 20
	mostBytes = 1 << 30 // of all values: 65,536 ranks with addresses of 16 KiB
)

// stream reads and writes what the protocol has. After an error it does nothing more.
type stream struct {
	in  *bufio.Reader
	out *bufio.Writer
	err error
}

func newStream(both io.ReadWriter) *stream {
	return &stream{in: bufio.NewReader(both), out: bufio.NewWriter(both)}
}

func (s *stream) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

func (s *stream) read(p []byte) {
	if s.err == nil {
		_, s.err = io.ReadFull(s.in, p)
	}
}

func (s *stream) readByte() byte {
	var b [1]byte
	s.read(b[:])
	return b[0]
}

func (s *stream) readNumber() uint64 {
	var b [8]byte
	s.read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// readBytes reads a key or a value of up to most bytes.
func (s *stream) readBytes(most uint64) []byte {
	n := s.readNumber()
	if n > most {
		s.fail("%d bytes, allowed are %d", n, most)
	}
	if s.err != nil {
		return nil
	}
	p := make([]byte, n)
	s.read(p)
	return p
}

func (s *stream) readKeys() []string {
	n := s.readNumber()
	if n > mostKeys {
		s.fail("%d keys, allowed are %d", n, mostKeys)
	}
	var keys []string
	for ; n > 0 && s.err == nil; n-- {
		keys = append(keys, string(s.readBytes(mostKey)))
	}
	return keys
}

func (s *stream) write(p []byte) {
	if s.err == nil {
		_, s.err = s.out.Write(p)
	}
}

func (s *stream) writeByte(b byte) { s.write([]byte{b}) }

func (s *stream) writeNumber(n uint64) { s.write(binary.LittleEndian.AppendUint64(nil, n)) }

func (s *stream) writeBytes(p []byte) {
	s.writeNumber(uint64(len(p)))
	s.write(p)
}

func (s *stream) writeKeys(keys []string) {
	s.writeNumber(uint64(len(keys)))
	for _, key := range keys {
		s.writeBytes([]byte(key))
	}
}

func (s *stream) flush() {
	if s.err == nil {
		s.err = s.out.Flush()
	}
}
