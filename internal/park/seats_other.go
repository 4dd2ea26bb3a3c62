//go:build !linux

package park

// online returns no cores: threads cannot be moved on this system.
func online() []int { return nil }

func here() int { return -1 }

func move(int) bool { return false }
