package lint

import (
	"strings"
	"testing"
)

// TestFindings shows each rule a violation that it must find, and something similar that it must
// not.
func TestFindings(t *testing.T) {
	const ours = modulePath + "/"
	cases := []struct {
		rule, path, text string
		line             int // of the finding; 0 when there must be none
	}{
		{"layers", "ccl/plan/x.go", "package plan\nimport _ \"" + ours + "ccl/exec\"", 2},
		{"layers", "ccl/exec/x.go", "package exec\nimport _ \"" + ours + "ccl/plan\"", 0},
		{"layers", "ccl/exec/x.go", "package exec\nimport _ \"" + ours + "ccl/exec/p2p\"", 0},
		{"layers", "ccl/exec/x.go", "package exec\nimport _ \"" + ours + "ccl/tune\"", 2},
		{"layers", "ccl/exec/x.go", "package exec\nimport _ \"" + ours + "transport/tcp\"", 2},
		{"layers", "ccl/exec/x.go", "package exec\nimport _ \"" + ours + "transport\"", 0},
		{"layers", "ccl/exec/x.go", "package exec\n\nimport (\n\t\"fmt\"\n\n\t_ \"" + ours + "ccl\"\n)", 6},
		{"layers", "ccl/x.go", "package ccl\nimport _ \"" + ours + "transport/tcp\"", 0},
		{"layers", "ccl/x.go", "package ccl\nimport _ \"" + ours + "pgbackend\"", 2},
		{"layers", "transport/tcp/x.go", "package tcp\nimport _ \"" + ours + "transport/shm\"", 2},
		{"layers", "transport/inproc/x.go", "package inproc\nimport _ \"" + ours + "transport/ring\"", 0},
		{"layers", "transport/shm/x.go", "package shm\nimport _ \"" + ours + "transport/ring\"", 0},
		{"layers", "transport/ring/x.go", "package ring\nimport _ \"" + ours + "transport/shm\"", 2},
		{"layers", "transport/x.go", "package transport\nimport _ \"" + ours + "transport/shm\"", 2},
		{"layers", "ccl/dtype/x.go", "package dtype\nimport _ \"" + ours + "internal/lint/trace\"", 2},
		{"layers", "ccl/verify/x_test.go", "package verify\nimport _ \"" + ours + "ccl/algo\"", 0},
		{"layers", "ccl/verify/x.go", "package verify\nimport _ \"" + ours + "ccl/algo\"", 2},
		{"layers", "newfolder/x.go", "package newfolder", 1},
		{"cgo", "ccl/exec/x.go", "package exec\n\nimport \"C\"", 3},
		{"cgo", "cabi/exports/x.go", "package exports\nimport \"C\"", 0},
		{"unix", "ccl/exec/x.go", "package exec\nimport _ \"golang.org/x/sys/unix\"", 2},
		{"unix", "transport/x.go", "package transport\nimport _ \"golang.org/x/sys/unix\"", 2},
		{"unix", "transport/shm/x.go", "package shm\nimport _ \"golang.org/x/sys/unix\"", 0},
		{"unix", "ccl/topo/x.go", "package topo\nimport _ \"golang.org/x/sys/unix\"", 2},
		{"unix", "ccl/topo/probe/x.go", "package probe\nimport _ \"golang.org/x/sys/unix\"", 0},
		{"testify", "ccl/x.go", "package ccl\nimport _ \"github.com/stretchr/testify/require\"", 2},
		{"testify", "ccl/x_test.go", "package ccl\nimport _ \"github.com/stretchr/testify/require\"", 0},
		{"algorithms", "ccl/exec/x.go", "package exec\nimport _ \"" + ours + "ccl/algo\"", 2},
		{"algorithms", "pgbackend/x.go", "package pgbackend\nimport _ \"" + ours + "ccl/algo\"", 2},
		{"algorithms", "ccl/exec/x_test.go", "package exec\nimport _ \"" + ours + "ccl/algo\"", 0},
		{"algorithms", "ccl/tune/x.go", "package tune\nimport _ \"" + ours + "ccl/algo\"", 0},
		{"fabrics", "cabi/exports/x.go", "package exports\nimport _ \"" + ours + "transport/tcp\"", 2},
		{"fabrics", "pgbackend/x.go", "package pgbackend\nimport _ \"" + ours + "transport/ring\"", 2},
		{"fabrics", "pgbackend/x.go", "package pgbackend\nimport _ \"" + ours + "transport\"", 0},
		{"environment", "ccl/x.go", "package ccl\nimport \"os\"\nvar x = os.Getenv(\"X\")", 3},
		{"environment", "ccl/x.go", "package ccl\nimport env \"os\"\nvar x, _ = env.LookupEnv(\"X\")", 3},
		{"environment", "ccl/x.go", "package ccl\nimport \"os\"\nvar x = os.Getpid()", 0},
		{"environment", "ccl/environment.go", "package ccl\nimport \"os\"\nvar x = os.Getenv(\"X\")", 0},
		{"environment", "cmd/goccl/x.go", "package main\nimport \"os\"\nvar x = os.Getenv(\"X\")", 0},
		{"exit", "ccl/x.go", "package ccl\nimport \"os\"\nfunc f() {\n\tos.Exit(1)\n}", 4},
		{"exit", "cabi/libgoccl/x.go", "package main\nimport \"log\"\nfunc f() { log.Fatal() }", 3},
		{"exit", "ccl/kernel/gen/x.go", "package main\nimport \"os\"\nfunc main() { os.Exit(1) }", 0},
		{"print", "ccl/x.go", "package ccl\nimport \"fmt\"\nfunc f() { fmt.Println() }", 3},
		{"print", "ccl/x.go", "package ccl\nfunc f() { println(1) }", 2},
		{"print", "ccl/x.go", "package ccl\nimport \"fmt\"\nvar x = fmt.Sprint()", 0},
		{"interpreter", "ccl/exec/x.go", "package exec\nfunc f() {\n\tswitch b.Op {\n\tcase program.OpWait:\n\t}\n}", 3},
		{"interpreter", "ccl/program/x.go", "package program\nfunc f() {\n\tswitch b.Op {\n\tcase OpWait:\n\t}\n}", 3},
		{"interpreter", "ccl/exec/x.go", "package exec\nfunc runLane() {\n\tswitch b.Op {\n\tcase program.OpWait:\n\t}\n}", 0},
		{"interpreter", "ccl/exec/x.go", "package exec\nfunc f() {\n\tswitch b.Way {\n\t}\n}", 0},
		{"opcodes", "cuda/group/x.go", "package group\nfunc f() {\n\tg(b.Op == program.OpCopy)\n}", 3},
		{"opcodes", "cuda/group/x.go", "package group\nfunc f() {\n\tswitch b.Op {\n\tcase program.OpWait:\n\t}\n}", 4},
		{"opcodes", "cuda/group/x.go", "package group\nfunc Emit() {\n\tg(b.Op == program.OpCopy)\n}", 0},
		{"opcodes", "cuda/group/x.go", "package group\nfunc f(o program.Operand) {}", 0},
		{"kinds", "cmd/goccl/x.go", "package main\nfunc f() {\n\tswitch s.Kind {\n\tcase plan.Send:\n\t}\n}", 4},
		{"kinds", "ccl/sim/x.go", "package sim\nfunc f() {\n\tg(s.Kind != plan.Wait)\n}", 3},
		{"kinds", "ccl/sim/x.go", "package sim\nfunc try() {\n\tswitch s.Kind {\n\tcase plan.Send:\n\t}\n}", 0},
		{"kinds", "ccl/sim/x.go", "package sim\nfunc f() {\n\tg(s.Kind == plan.Copy, coll == dtype.Send)\n}", 0},
		{"kinds", "ccl/plan/x.go", "package plan\nfunc f() {\n\tg(s.Kind == Put)\n}", 3},
		{"hosts", "ccl/exec/x.go", "package exec\nfunc f(hosts [][]int) {}", 2},
		{"hosts", "ccl/exec/x.go", "package exec\ntype x struct {\n\tHosts [][]int\n}", 3},
		{"hosts", "ccl/exec/x.go", "package exec\nfunc f(lanes [][]int) {}", 0},
		{"hosts", "ccl/topo/x.go", "package topo\nfunc f(hosts [][]int) {}", 0},
		{"people", "ccl/x.go", "package ccl\nimport \"github.com/spf13/cobra\"", 2},
		{"people", "cmd/goccl/internal/cli/x.go", "package cli\nimport \"github.com/spf13/cobra\"", 0},
		{"words", "ccl/exec/x.go", "package exec\nvar x = fault.New(1,\n\t\"session %x\")", 3},
		{"words", "pgbackend/x.go", "package pgbackend\nvar x = fault.New(1, \"set Options.Port\")", 2},
		{"words", "ccl/exec/x.go", "package exec\nvar x = fault.New(1, \"rank %d is in no call\")", 0},
		{"sleep", "ccl/exec/x.go", "package exec\nfunc f() {\n\tb.Sleep(1, 2)\n}", 3},
		{"sleep", "ccl/exec/x.go", "package exec\nfunc f() {\n\tpark.Wait(&w, 1, 2)\n}", 3},
		{"sleep", "ccl/exec/x.go", "package exec\nfunc rest() {\n\tb.Sleep(1, 2)\n}", 0},
		{"sleep", "ccl/exec/x.go", "package exec\nfunc f() {\n\top.Wait(nil)\n}", 0},
		{"unsafe", "ccl/exec/x.go", "package exec\nimport \"unsafe\"", 2},
		{"unsafe", "ccl/exec/memory.go", "package exec\nimport \"unsafe\"", 0},
		{"package doc", "ccl/tune/x.go", "package tune", 1},
		{"package doc", "ccl/tune/x.go", "// Package tune chooses.\npackage tune", 0},
		{"package name", "ccl/util/x.go", "package util", 1},
		{"package name", "ccl/utility/x.go", "package utility", 0},
		{"generated", "ccl/kernel/zadd_amd64.s", "TEXT add", 1},
		{"generated", "ccl/kernel/zadd_amd64.s", "// Code generated by gen. DO NOT EDIT.\n", 0},
		{"generated", "ccl/kernel/add_amd64.s", "// Code generated by gen. DO NOT EDIT.\n", 1},
		{"generated", "python/goccl/zcodes.py", "# Code generated by gen. DO NOT EDIT.\n", 0},
		{"glossary", "GLOSSARY.md", "| word | meaning | where |\n| rank | a member | `ccl.Rank` |\n", 2},
		{"glossary", "GLOSSARY.md", "| word | meaning | where |\n| word | `x.Y` | here, `GLOSSARY.md` |\n", 0},
		{"index", "RATIONALE.md", "# Why\n\n* [Why?](#why)\n\n## Why?\n\n## How?\n", 7},
		{"index", "RATIONALE.md", "# Why\n\n* [Why?](#why)\n* [How?](#how)\n\n## Why?\n\n## How?\n", 0},
		{"stages", "tests/new/test_x.py", "def test_x(): pass", 1},
		{"glossary", "GLOSSARY.md", "| word | meaning | where |\n| rank | a member | `ccl.Rank` |\n", 2},
		{"glossary", "GLOSSARY.md", "| word | meaning | where |\n| word | `x.Y` | here, `GLOSSARY.md` |\n", 0},
		{"index", "RATIONALE.md", "# Why\n\n* [Why?](#why)\n\n## Why?\n\n## How?\n", 7},
		{"index", "RATIONALE.md", "# Why\n\n* [Why?](#why)\n* [How?](#how)\n\n## Why?\n\n## How?\n", 0},
		{"stages", "tests/new/rank.py", "def test_x(): pass", 0},
		{"length", "ccl/x.go", "package ccl\n" + strings.Repeat("\n", 600), 601},
		{"length", "ccl/x_test.go", "package ccl\n" + strings.Repeat("\n", 600), 0},
		{"width", "ccl/x.go", "package ccl\n\nvar x = 1" + strings.Repeat(" + 1", 28), 3},
		{"width", "ccl/x.go", "package ccl\n\nvar x = \"" + strings.Repeat("x", 111) + "\"", 0},
		{"width", "ccl/x.go", "package ccl\n\n// " + strings.Repeat("x", 98), 3},
		{"width", "python/csrc/x.h", "// " + strings.Repeat("x", 118), 1},
		{"machine", "docs/x.md", "one\nsee /ho" + "me/someone/x", 2},
		{"machine", "docs/x.md", "built in `/wo" + "rk/main`", 1},
		{"machine", "docs/x.md", "a frame" + "wo" + "rk/plugin and ./wo" + "rk/x", 0},
	}
	for _, each := range cases {
		m := &module{}
		if err := m.add(each.path, []byte(each.text)); err != nil {
			t.Fatal(err)
		}
		found := check(t, each.rule, m)
		switch {
		case each.line == 0 && len(found) > 0:
			t.Errorf("%s on %s %q finds %v", each.rule, each.path, each.text, found)
		case each.line > 0 && (len(found) != 1 || found[0].path != each.path || found[0].line != each.line):
			t.Errorf("%s on %s %q finds %v, not one thing in line %d",
				each.rule, each.path, each.text, found, each.line)
		}
	}
	for _, rule := range rules {
		shown := false
		for _, each := range cases {
			shown = shown || each.rule == rule.name && each.line > 0
		}
		if !shown {
			t.Errorf("no case shows what the rule %q finds", rule.name)
		}
	}
}

func check(t *testing.T, name string, m *module) []finding {
	t.Helper()
	for _, rule := range rules {
		if rule.name == name {
			return rule.check(m)
		}
	}
	t.Fatalf("no rule is called %q", name)
	return nil
}
