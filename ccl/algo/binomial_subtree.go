package algo

// binomialSize returns the number of ranks in the subtree of v, with v itself, in a binomial tree
// of n ranks. The subtree is ranks v to v+size-1.
func binomialSize(v, n int) int {
	if v == 0 {
		return n
	}
	return min(v&-v, n-v)
}
