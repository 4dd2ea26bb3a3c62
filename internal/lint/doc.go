// Package lint is the project's lint. Its tests check the import rules, and a few others that
// neither the compiler nor go vet knows, in every file of the repository.
//
// A rule is an entry of the table in rules_test.go, with the reason that its errors print.
// findings_test.go lists a violation of each rule, so that no rule passes because it checks
// nothing.
package lint
