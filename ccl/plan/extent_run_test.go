package plan

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestCompress(t *testing.T) {
	for _, test := range []struct {
		list []Extent
		want string
	}{
		{[]Extent{{0, 0, 0}, {0, 0, 1}, {0, 0, 2}}, "0/0..2"},
		{[]Extent{{3, 3, 0}, {2, 2, 0}, {1, 1, 0}, {0, 0, 0}}, "3..0/0"},
		{[]Extent{{1, 1, 0}, {1, 1, 1}, {2, 2, 0}, {2, 2, 1}}, "1..2/0..1"},
		{[]Extent{{0, 0, 1}, {0, 0, 1}, {0, 0, 1}}, "0/1*3"},
		{[]Extent{{1, 0, 0}, {1, 1, 0}, {1, 2, 0}}, "1>0..2/0"},
		{[]Extent{{1, 1, 0}, {1, 2, 0}, {1, 3, 0}}, "1>1..3/0"},
		{[]Extent{{0, 1, 0}, {1, 1, 0}, {2, 1, 0}}, "0..2>1/0"},
		{[]Extent{{0, 1, 0}, {0, 2, 0}, {1, 1, 0}, {1, 2, 0}}, "0..1>1..2/0"},
		{[]Extent{{5, 1, 7}}, "5>1/7"},
	} {
		var b []byte
		for i, r := range compress(test.list) {
			if i > 0 {
				b = append(b, ' ')
			}
			b = r.append(b)
		}
		if string(b) != test.want {
			t.Errorf("%v: %s, want %s", test.list, b, test.want)
		}
	}
}

// TestCompressExpands checks that the runs of compress expand to the original list, for lists with
// and without patterns.
func TestCompressExpands(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var list []Extent
		e := Extent{rng.IntN(4), rng.IntN(4), rng.IntN(3)}
		for range rng.IntN(20) {
			list = append(list, e)
			switch rng.IntN(8) {
			case 0:
				e.From = rng.IntN(4)
			case 1:
				e.To = rng.IntN(4)
			case 2:
				e.Part = rng.IntN(3)
			case 3:
				e.From, e.To = (e.From+1)%4, (e.To+1)%4
			case 4:
				e.To = (e.To + 3) % 4
			case 5:
				e.From = (e.From + 1) % 4
			case 6:
				e.Part = (e.Part + 1) % 3
			}
		}
		var back []Extent
		n := 0
		for _, r := range compress(list) {
			back = r.expand(back)
			n += r.len(MaxTmp)
		}
		if !reflect.DeepEqual(back, list) || n != len(list) {
			t.Fatalf("%v became %v", list, back)
		}
	}
}
