package plan_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// roundTrip writes a plan in both forms, reads both back and compares.
func roundTrip(t *testing.T, p *plan.Plan) {
	t.Helper()
	text := p.Text()
	q, err := plan.Load([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	same(t, p, q)
	data, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if q, err = plan.Load(data); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	same(t, p, q)
	if p.Hash() != q.Hash() {
		t.Error("the same plan has another hash")
	}
}

// same fails unless the plan q, which was read, has the same contents as p.
func same(t *testing.T, p, q *plan.Plan) {
	t.Helper()
	if p.Text() != q.Text() {
		t.Fatalf("wrote\n%s\nread\n%s", p.Text(), q.Text())
	}
	for rank := range p.Spec.Ranks {
		a, b := p.Program(rank), q.Program(rank)
		a, b = a.Flat(), b.Flat()
		if !sameExtents(a.Tmp, b.Tmp) || !sameExtents(a.Win, b.Win) || len(a.Lanes) != len(b.Lanes) {
			t.Fatalf("rank %d: tmp, win or the number of lanes differs", rank)
		}
		for l := range a.Lanes {
			if len(a.Lanes[l]) != len(b.Lanes[l]) {
				t.Fatalf("rank %d, lane %d: %d steps, read %d", rank, l, len(a.Lanes[l]), len(b.Lanes[l]))
			}
			for i := range a.Lanes[l] {
				if x, y := plain(a.Lanes[l][i]), plain(b.Lanes[l][i]); !reflect.DeepEqual(x, y) {
					t.Fatalf("rank %d, lane %d, step %d: %+v, read %+v", rank, l, i, x, y)
				}
			}
		}
	}
}

func sameExtents(a, b []plan.Extent) bool {
	return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b))
}

// plain makes empty lists nil, and drops By.
func plain(s plan.Step) plan.Step {
	s.By = nil
	if len(s.Src) == 0 {
		s.Src = nil
	}
	if len(s.From) == 0 {
		s.From = nil
	}
	if len(s.After) == 0 {
		s.After = nil
	}
	return s
}

func TestRoundTrip(t *testing.T) {
	roundTrip(t, everyForm())
	for _, a := range algo.All() {
		for _, ranks := range []int{2, 4, 7} {
			spec := plan.Spec{Coll: a.Coll, Ranks: ranks}
			if a.Coll.Rooted() {
				spec.Root = ranks / 2
			}
			p, err := a.Make(spec)
			if err != nil {
				if errors.Is(err, fault.NotSupported) {
					continue // not for this number of ranks
				}
				t.Fatal(err)
			}
			for rank := range ranks {
				if err := p.Validate(rank); err != nil {
					t.Fatal(err)
				}
			}
			roundTrip(t, p)
		}
	}
}
