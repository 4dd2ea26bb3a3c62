// Package lint is the project's lint: its tests hold the import rules and a few others that neither
// the compiler nor go vet knows, over every file of the repository.
//
// A rule is an entry of the table in rules_test.go, with the reason that its errors print. What
// breaks a rule is listed in findings_test.go, so that no rule passes because it looks at nothing.
package lint
