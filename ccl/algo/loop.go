package algo

import "github.com/goccl/goccl/ccl/plan"

// loop returns the steps of body repeated times times: no steps, the steps themselves, or a loop.
// Their numbers advance by their By.
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
