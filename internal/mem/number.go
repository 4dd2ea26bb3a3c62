package mem

import (
	"bytes"
	"os"
	"strconv"
)

// number reads a file that holds one number. It returns false for "max".
func number(file string) (int64, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
	return n, err == nil
}
