package sim

import (
	"math/bits"

	"github.com/goccl/goccl/ccl/dtype"
)

// Cost is Hockney's model of a uniform network: a message of b bytes takes Alpha + b·Beta,
// arithmetic Gamma per byte (Hockney, "The communication challenge for MPP: Intel Paragon and Meiko
// CS-2", 1994).
type Cost struct{ Alpha, Beta, Gamma float64 }

// Formula is the closed form of the time of an algorithm on a uniform network where every step
// stores and forwards.
type Formula struct {
	Coll dtype.Collective
	Name string // of the algorithm in package algo
	// Text is the formula; m is the bytes of a block if a rank has one, and of all blocks together
	// if it has one for each rank.
	Text   string
	Source string
	Exact  func(ranks int) bool // whether it is exact for the given number of ranks; otherwise it is approximate
	Time   func(c Cost, ranks int, m float64) float64
}

const (
	thakur  = "Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH (2005)"
	chan07  = "Chan, Heimlich, Purkayastha, van de Geijn, Collective communication: theory, practice, and experience (2007)"
	pataras = "Patarasuk, Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations (2009)"
	bruck   = "Bruck, Ho, Kipnis, Upfal, Weathersby, Efficient algorithms for all-to-all communications (1997)"
	hensgen = "Hensgen, Finkel, Manber, Two algorithms for barrier synchronization (1988)"
)

func anyRanks(int) bool         { return true }
func powerOfTwo(ranks int) bool { return ranks&(ranks-1) == 0 }

// log returns the number of rounds of an algorithm whose reach doubles in each round.
func log(ranks int) float64 { return float64(bits.Len(uint(ranks - 1))) }

// rest returns the share of a vector that n-1 of n ranks hold.
func rest(ranks int) float64 { return float64(ranks-1) / float64(ranks) }

// AllReduceRing returns 2(n-1)(α + βm/n) + (n-1)γm/n.
func AllReduceRing(c Cost, ranks int, m float64) float64 {
	return 2*float64(ranks-1)*c.Alpha + rest(ranks)*m*(2*c.Beta+c.Gamma)
}

// AllReduceRecursiveDoubling returns log n (α + βm + γm).
func AllReduceRecursiveDoubling(c Cost, ranks int, m float64) float64 {
	return log(ranks) * (c.Alpha + m*(c.Beta+c.Gamma))
}

// AllReduceRabenseifner returns 2 log n α + 2(n-1)βm/n + (n-1)γm/n.
func AllReduceRabenseifner(c Cost, ranks int, m float64) float64 {
	return 2*log(ranks)*c.Alpha + rest(ranks)*m*(2*c.Beta+c.Gamma)
}

// Binomial returns log n (α + βm): a tree in which every message travels down or up as a whole.
func Binomial(c Cost, ranks int, m float64) float64 { return log(ranks) * (c.Alpha + m*c.Beta) }

// BinomialReduce returns log n (α + βm + γm).
func BinomialReduce(c Cost, ranks int, m float64) float64 {
	return log(ranks) * (c.Alpha + m*(c.Beta+c.Gamma))
}

// Steps returns (n-1)(α + βm/n): one of n blocks per step.
func Steps(c Cost, ranks int, m float64) float64 {
	return float64(ranks-1)*c.Alpha + rest(ranks)*m*c.Beta
}

// StepsReduce returns (n-1)(α + βm/n + γm/n).
func StepsReduce(c Cost, ranks int, m float64) float64 {
	return float64(ranks-1)*c.Alpha + rest(ranks)*m*(c.Beta+c.Gamma)
}

// Doubling returns log n α + (n-1)βm/n: distances and messages that double, or halve.
func Doubling(c Cost, ranks int, m float64) float64 {
	return log(ranks)*c.Alpha + rest(ranks)*m*c.Beta
}

// DoublingReduce returns log n α + (n-1)(β+γ)m/n.
func DoublingReduce(c Cost, ranks int, m float64) float64 {
	return log(ranks)*c.Alpha + rest(ranks)*m*(c.Beta+c.Gamma)
}

// ScatterAllGather returns (log n + n-1)α + 2(n-1)βm/n: a broadcast by a binomial scatter and a
// ring (van de Geijn).
func ScatterAllGather(c Cost, ranks int, m float64) float64 {
	return (log(ranks)+float64(ranks-1))*c.Alpha + 2*rest(ranks)*m*c.Beta
}

// Dissemination returns log n α.
func Dissemination(c Cost, ranks int, _ float64) float64 { return log(ranks) * c.Alpha }

// Formulas returns the closed forms that simulations equal on network.Uniform.
func Formulas() []Formula {
	return []Formula{
		{dtype.AllReduce, "ring", "2(n-1)(α + βm/n) + (n-1)γm/n", pataras, anyRanks, AllReduceRing},
		{dtype.AllReduce, "recursive_doubling", "log n (α + βm + γm)", thakur, powerOfTwo, AllReduceRecursiveDoubling},
		{dtype.AllReduce, "rabenseifner", "2 log n α + (n-1)(2β + γ)m/n", thakur, powerOfTwo, AllReduceRabenseifner},
		{dtype.Broadcast, "binomial", "log n (α + βm)", thakur, anyRanks, Binomial},
		{dtype.Broadcast, "scatter_allgather", "(log n + n-1)α + 2(n-1)βm/n", thakur, powerOfTwo, ScatterAllGather},
		{dtype.Reduce, "binomial", "log n (α + βm + γm)", thakur, powerOfTwo, BinomialReduce},
		{dtype.Scatter, "linear", "(n-1)(α + βm/n)", chan07, anyRanks, Steps},
		{dtype.Scatter, "binomial", "log n α + (n-1)βm/n", chan07, powerOfTwo, Doubling},
		{dtype.Gather, "binomial", "log n α + (n-1)βm/n", chan07, powerOfTwo, Doubling},
		{dtype.AllGather, "ring", "(n-1)(α + βm/n)", thakur, anyRanks, Steps},
		{dtype.AllGather, "direct", "(n-1)(α + βm/n)", chan07, anyRanks, Steps},
		{dtype.AllGather, "pairwise", "(n-1)(α + βm/n)", thakur, anyRanks, Steps},
		{dtype.AllGather, "recursive_doubling", "log n α + (n-1)βm/n", thakur, powerOfTwo, Doubling},
		{dtype.AllGather, "bruck", "log n α + (n-1)βm/n", bruck, anyRanks, Doubling},
		{dtype.ReduceScatter, "ring", "(n-1)(α + (β+γ)m/n)", thakur, anyRanks, StepsReduce},
		{dtype.ReduceScatter, "pairwise", "(n-1)(α + (β+γ)m/n)", thakur, anyRanks, StepsReduce},
		{dtype.ReduceScatter, "recursive_halving", "log n α + (n-1)(β+γ)m/n", thakur, powerOfTwo, DoublingReduce},
		{dtype.AllToAll, "linear", "(n-1)(α + βm/n)", thakur, anyRanks, Steps},
		{dtype.AllToAll, "pairwise", "(n-1)(α + βm/n)", thakur, anyRanks, Steps},
		{dtype.Barrier, "dissemination", "log n α", hensgen, anyRanks, Dissemination},
	}
}

// FormulaOf returns the closed form of an algorithm, if there is one.
func FormulaOf(coll dtype.Collective, name string) (Formula, bool) {
	for _, f := range Formulas() {
		if f.Coll == coll && f.Name == name {
			return f, true
		}
	}
	return Formula{}, false
}
