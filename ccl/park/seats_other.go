//go:build !linux

package park

// online is empty where threads cannot be told which core to run on.
func online() []int { return nil }

func here() int { return -1 }

func move(int) bool { return false }
