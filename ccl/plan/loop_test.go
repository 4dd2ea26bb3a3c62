package plan_test

import (
	"reflect"
	"testing"

	"github.com/goccl/goccl/ccl/plan"
)

// TestLoops checks that Len, StepAt, Flat and Advanced agree on a program.
func TestLoops(t *testing.T) {
	p := everyForm()
	prog := p.Program(1)
	flat := prog.Flat()
	for l, lane := range prog.Lanes {
		if plan.Len(lane) != len(flat.Lanes[l]) {
			t.Fatalf("lane %d: Len %d, Flat has %d", l, plan.Len(lane), len(flat.Lanes[l]))
		}
		i := 0
		for k := range lane {
			if lane[k].Kind != plan.Loop {
				expectStep(t, flat.Lanes[l][i], lane[k])
				expectStep(t, plan.StepAt(lane, i), lane[k])
				i++
				continue
			}
			for times := range lane[k].Times {
				for j := range lane[k].Body {
					want := lane[k].Body[j].Advanced(times)
					expectStep(t, flat.Lanes[l][i], want)
					expectStep(t, plan.StepAt(lane, i), want)
					i++
				}
			}
		}
	}
	if got := flat.Lanes[0][5].String(); got != "send out[0:2] to 2 chan 1 after 2.1 1.0" {
		t.Error(got)
	}
	if got := flat.Lanes[0][4+3*6+1].String(); got != "send out[6:8] to 2 chan 1 after 2.7 1.0" {
		t.Error(got)
	}
	if got := flat.Lanes[0][4+3*5].String(); got != "recv out[6] from 2" {
		t.Error(got)
	}
	q := plan.Plan{Spec: p.Spec, Split: p.Split, Chans: p.Chans, Flags: p.Flags, Win: p.Win, Needs: p.Needs,
		Name: p.Name, Program: func(int) plan.Program { return flat }}
	if err := q.Validate(1); err != nil {
		t.Errorf("unrolled: %v", err)
	}
	again := flat.Flat()
	if !reflect.DeepEqual(again, flat) {
		t.Error("Flat of a flat program differs from it")
	}
	defer func() {
		if recover() == nil {
			t.Error("StepAt of a step that is not there returned")
		}
	}()
	plan.StepAt(prog.Lanes[1], 1)
}

func expectStep(t *testing.T, got, want plan.Step) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", &got, &want)
	}
}

func TestStride(t *testing.T) {
	for _, test := range []struct {
		s       plan.Stride
		x, i, n int
	}{
		{plan.Stride{}, 5, 9, 5},
		{plan.Stride{By: -2}, 5, 3, -1},
		{plan.Stride{By: -1, Mod: 8}, 3, 4, 7},
		{plan.Stride{By: 1, Low: 2, Mod: 3}, 4, 1, 2},
		{plan.Stride{By: 3, Low: -4, Mod: 5}, 0, 7, -4},
	} {
		if n := test.s.At(test.x, test.i); n != test.n {
			t.Errorf("%+v.At(%d, %d) = %d, want %d", test.s, test.x, test.i, n, test.n)
		}
	}
}
