package ccl

import (
	"errors"
	"fmt"
	"sync"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/ccl/verify"
)

// provenRanks is the largest group whose plans of the catalogue are proven before a release.
const provenRanks = 64

// mustProve reports whether a plan must be proven in the form that runs, before its first use:
// users' plans, plans that no release has proven, and all plans where GOCCL_VERIFY asks for it.
func mustProve(own, always bool, ranks int) bool { return own || always || ranks > provenRanks }

// These constants bound the cost of such a proof. mostProof bounds the steps of all ranks, times
// the ranks: some seconds of a core at most. mostWork bounds what package verify counts, and with
// it the memory. Neither is measured while a proof is made, so either all ranks prove a plan or
// none does.
const (
	mostProof = 1 << 24
	mostWork  = 1 << 30
)

// proofCost returns the steps of all ranks, times the ranks. It stops counting beyond mostProof.
func proofCost(p *plan.Plan) int {
	steps := 0
	for rank := range p.Spec.Ranks {
		prog := p.Program(rank)
		for _, lane := range prog.Lanes {
			steps += plan.Len(lane)
		}
		if steps > mostProof/p.Spec.Ranks {
			break
		}
	}
	return steps * p.Spec.Ranks
}

// proofs and unproven are for the whole process, by plan and form. proofs holds the results of
// proofs (func() error); unproven holds the plans that a warning has reported to run without a
// proof.
var proofs, unproven sync.Map

var errTooLarge = errors.New("too large to be proven before its first use")

// prove proves a plan in the form that runs, once in a process. The result is a function of the
// plan, so all ranks of a group get the same, and none needs to learn it from another.
func (p *planner) prove(made *plan.Plan, own string) error {
	level := p.wishes.Determinism
	key := fmt.Sprintf("%s %v, %s, level %d, always %v", made.Name, made.Spec, p.group.Form(), level, p.always)
	if own != "" {
		key += fmt.Sprintf(", hash %016x", made.Hash())
	}
	once, _ := proofs.LoadOrStore(key, sync.OnceValue(func() error {
		proven := func(work int64) error {
			err := provenAsRun(made, p.group.Slot() > 0, level, work)
			_, device := p.group.Devices()
			if err == nil && device && (len(p.group.Hosts()) > 1 || made.Needs&plan.Messages == 0) {
				err = provenOnDevices(made, level, work)
			}
			return err
		}
		if p.always {
			return proven(verify.DefaultWork)
		}
		if proofCost(made) > mostProof {
			return errTooLarge
		}
		err := proven(mostWork)
		if errors.Is(err, fault.NotSupported) {
			return errTooLarge
		}
		return err
	}))
	err := once.(func() error)()
	if err == errTooLarge {
		if p.warn != nil {
			if _, said := unproven.LoadOrStore(key, true); !said {
				p.warn("%s", runsUnproven(made, own))
			}
		}
		return nil
	}
	if err != nil {
		return fault.Wrap(fault.Internal, err, "plan %s (%v) is refused, for it is not proven in the form that runs; "+
			"choose another, and please report this", made.Name, made.Spec)
	}
	return nil
}

// runsUnproven returns the warning that a plan runs without a proof, and how to prove it.
func runsUnproven(made *plan.Plan, own string) string {
	remedy := fmt.Sprintf(
		"`goccl verify --all --ranks %d --op %v --algo %s` proves it as it is written, GOCCL_VERIFY=always as it runs",
		made.Spec.Ranks, made.Spec.Coll, made.Name)
	if own != "" {
		remedy = fmt.Sprintf("`goccl verify %s` proves it, GOCCL_VERIFY=always does here", own)
	}
	return fmt.Sprintf("plan %s (%v) is %v, and runs without a proof: %s", made.Name, made.Spec, errTooLarge, remedy)
}

// ofFile is how a user raises the work for a plan from a file.
const ofFile = "GOCCL_VERIFY=always allows more (some GiB, and minutes)"

// FileProof limits what the proof of a plan from a file may cost.
func (o *GroupOptions) FileProof() verify.Options {
	if o.Verify == "always" {
		return verify.Options{Work: verify.DefaultWork}
	}
	return verify.Options{Work: verify.FileWork, Raise: ofFile}
}

// ProveAsRun proves a plan in the forms in which groups with a setting of GOCCL_DETERMINISM run it,
// with windows and without, and on devices, by no more than the given work for each.
func ProveAsRun(p *plan.Plan, determinism int, work int64) error {
	for _, windows := range []bool{false, true} {
		if err := provenAsRun(p, windows, determinism, work); err != nil {
			return err
		}
	}
	return provenOnDevices(p, determinism, work)
}

// provenAsRun proves a plan in the forms in which groups run it. A plan that groups refuse to run
// needs no proof. A plan that is too large for the given work returns a fault.NotSupported.
func provenAsRun(p *plan.Plan, windows bool, determinism int, work int64) error {
	short, long, err := program.AsRun(p, windows)
	if errors.Is(err, fault.NotSupported) {
		return nil
	}
	if err != nil {
		return err
	}
	return provenForms(determinism, work, short, long)
}

// provenOnDevices proves a plan in the forms in which devices execute it. One that they do not
// execute needs no such proof: the processor runs it. It is like provenAsRun otherwise.
func provenOnDevices(p *plan.Plan, determinism int, work int64) error {
	short, long, err := program.AsEnqueued(p)
	if errors.Is(err, fault.NotSupported) {
		return nil
	}
	if err == nil {
		err = provenForms(determinism, work, short, long)
	}
	var f *fault.Error
	if errors.As(err, &f) {
		err = fault.Wrap(f.Code, err, "as devices execute it")
	}
	return err
}

// provenForms proves forms of a plan, with short and with long blocks, and that each may follow
// itself.
func provenForms(determinism int, work int64, forms ...verify.Operation) error {
	for _, op := range forms {
		report, err := verify.Plan(op.Plan, verify.Options{Brief: true, Work: work, Raise: ofFile})
		if err != nil {
			return err
		}
		if report.Determinism < verify.Needed(determinism) {
			return fault.New(fault.Internal, "its results have determinism level %d", report.Determinism)
		}
		if op.Slots == 0 {
			// Plans that share no memory may always follow each other (package verify,
			// "Sequences").
			continue
		}
		// With one slot each operation has the slot of the one before. A sequence that is right
		// with one slot is right with more.
		op.Slots, op.Records = 1, min(1, op.Records)
		limits := verify.Options{Brief: true, Work: work, Raise: ofFile}
		if err := verify.Sequence([]verify.Operation{op, op}, limits); err != nil {
			return err
		}
	}
	return nil
}
