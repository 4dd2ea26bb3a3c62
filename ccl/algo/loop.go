package algo

import "github.com/goccl/goccl/ccl/plan"

// loop is so many times the steps of body, whose numbers advance by their By: nothing, the steps themselves, or a loop.
func loop(times int, body []plan.Step) []plan.Step {
	switch {
	case times <= 0:
		return nil
	case times > 1:
		return []plan.Step{{Kind: plan.Loop, Times: times, Body: body}}
	}
	for i := range body {
		body[i].By = nil
	}
	return body
}
