package tcp

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"io"
	"os"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
)

// leastSecret is the length of the shortest secret, in bytes.
const leastSecret = 16

// readSecret reads a file of GOCCL_SECRET_FILE; "" is none. White space around the secret does not
// count.
func readSecret(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its writer
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "GOCCL_SECRET_FILE")
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0) {
		return nil, fault.New(fault.Invalid,
			"GOCCL_SECRET_FILE=%s has mode %v: others than its owner can use it; chmod 600", name, info.Mode())
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(file, 1<<20))
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "GOCCL_SECRET_FILE")
	}
	if text = bytes.TrimSpace(text); len(text) < leastSecret {
		return nil, fault.New(fault.Invalid, "GOCCL_SECRET_FILE=%s has %d bytes, a secret has at least %d",
			name, len(text), leastSecret)
	}
	return text, nil
}

// mix makes the secret of an address one that only processes with the same secret file find.
func (f *Fabric) mix(a *address) {
	if len(f.secret) > 0 {
		mac := hmac.New(sha256.New, f.secret)
		mac.Write(a.secret[:])
		mac.Sum(a.secret[:0])
	}
}
