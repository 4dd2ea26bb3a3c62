package algo

// binomialSize is how many ranks the subtree of v has, v itself among them, in a binomial tree of n ranks: they are v to
// v+size-1.
func binomialSize(v, n int) int {
	if v == 0 {
		return n
	}
	return min(v&-v, n-v)
}
