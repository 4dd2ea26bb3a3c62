package ccl

import (
	"errors"
	"fmt"
	"sync"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// provenRanks is the largest group whose plans of the catalogue are proven before a release.
const provenRanks = 64

// mustProve is the rule of which plans are proven in the form that runs, before their first use:
// those of users, those that nobody has proven, and all where GOCCL_VERIFY asks for it.
func mustProve(own, always bool, ranks int) bool { return own || always || ranks > provenRanks }

// What such a proof may cost. mostProof bounds the steps of all ranks, times the ranks: some
// seconds of a core at the most. mostWork bounds what package verify counts, and with it the
// memory. Neither is measured while a proof is made, so all ranks prove a plan or none does.
const (
	mostProof = 1 << 24
	mostWork  = 1 << 30
)

// proofCost is the steps of all ranks, times the ranks. It stops counting behind mostProof.
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

// proofs and unproven are of this process, by plan and form: what proofs have found (func() error),
// and of which plans it was said that they run without one.
var proofs, unproven sync.Map

var errTooLarge = errors.New("too large to be proven before its first use")

// prove proves a plan in the form that runs, once in a process. What it finds is a function of the
// plan, so all ranks of a group find the same, and none needs to hear it from another.
func (p *planner) prove(made *plan.Plan, own string) error {
	key := fmt.Sprintf("%s %v, windows %v, level %d, always %v", made.Name, made.Spec, p.rules.Windows, p.rules.Determinism, p.always)
	if own != "" {
		key += fmt.Sprintf(", hash %016x", made.Hash())
	}
	once, _ := proofs.LoadOrStore(key, sync.OnceValue(func() error {
		if p.always {
			return provenAsRun(made, p.rules.Windows, p.rules.Determinism, verify.DefaultWork)
		}
		if proofCost(made) > mostProof {
			return errTooLarge
		}
		err := provenAsRun(made, p.rules.Windows, p.rules.Determinism, mostWork)
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

// runsUnproven says that a plan runs without a proof, and what makes one.
func runsUnproven(made *plan.Plan, own string) string {
	remedy := fmt.Sprintf("`goccl verify --all --ranks %d --coll %v --algo %s` proves it as it is written, GOCCL_VERIFY=always as it runs",
		made.Spec.Ranks, made.Spec.Coll, made.Name)
	if own != "" {
		remedy = fmt.Sprintf("`goccl verify %s` proves it, GOCCL_VERIFY=always does here", own)
	}
	return fmt.Sprintf("plan %s (%v) is %v, and runs without a proof: %s", made.Name, made.Spec, errTooLarge, remedy)
}

// ProveAsRun proves a plan in the forms in which groups with a setting of GOCCL_DETERMINISM run it,
// over windows and without, however long it takes.
func ProveAsRun(p *plan.Plan, determinism int) error {
	for _, windows := range []bool{false, true} {
		if err := provenAsRun(p, windows, determinism, verify.DefaultWork); err != nil {
			return err
		}
	}
	return nil
}

// provenAsRun proves a plan in the forms in which groups run it, with short and with long blocks,
// and that it may follow itself. What a group refuses to run needs no proof. A plan that is too
// large for so much work gives a fault.NotSupported.
func provenAsRun(p *plan.Plan, windows bool, determinism int, work int64) error {
	short, long, err := exec.AsRun(p, windows)
	if errors.Is(err, fault.NotSupported) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, op := range []verify.Operation{short, long} {
		report, err := verify.Plan(op.Plan, verify.Options{Brief: true, Work: work})
		if err != nil {
			return err
		}
		if report.Determinism < verify.Needed(determinism) {
			return fault.New(fault.Internal, "its results have determinism level %d", report.Determinism)
		}
		if op.Slots == 0 {
			continue // all plans may follow each other that share no memory (package verify, "Sequences")
		}
		// With one slot each operation has that of the one before: what is right so is right with
		// more.
		op.Slots, op.Records = 1, min(1, op.Records)
		if err := verify.Sequence([]verify.Operation{op, op}, verify.Options{Brief: true, Work: work}); err != nil {
			return err
		}
	}
	return nil
}
