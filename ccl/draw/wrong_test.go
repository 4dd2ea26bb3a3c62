package draw_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/draw"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// wrongPlans are all_reduce plans in the text form, with what the drawing of each must show: how
// far it gets, and its marks.
var wrongPlans = []struct {
	name, text string
	facts      string
	arrows     int // of messages that move
	never      int // arrows of messages that never move
	blamed     int // chips and dots
	out        []string
}{
	{"a deadlock", `plan swap all_reduce ranks=2 needs=messages
rank 0
  lane 0
    send in[0] to 1
    recvreduce out[0] = in[0] + msg from 1 final
rank 1
  lane 0
    send in[0] to 0
    recvreduce out[0] = msg + in[0] from 0 final
`, "4 of 4 steps never happen", 0, 2, 0, []string{"nobody wrote it", "never happens"}},
	{"a message that nobody sends, and one that nobody receives", `plan half all_reduce ranks=3 needs=messages
rank 0
  lane 0
    send in[0] to 1
  lane 1
    recvreduce out[0] = in[0] + msg from 2 final
rank 1
  lane 0
    recvreduce out[0] = in[0] + msg from 0
    send out[0] to 2
    recv out[0] from 2
rank 2
  lane 0
    recvreduce out[0] = in[0] + msg from 1 final
    send out[0] to 0
    send out[0] to 0
`, "2 of 8 steps never happen", 3, 2, 0, []string{"never happens", ">twice<"}},
	{"a race", `plan racy all_reduce ranks=2 needs=messages
rank 0
  lane 0
    send in[0] to 1
  lane 1
    recvreduce out[0] = in[0] + msg from 1 final
rank 1
  tmp 0/0
  lane 0
    send in[0] to 0
  lane 1
    recv tmp[0] from 0
  lane 2
    copy tmp[0] = in[0]
  lane 3
    reduce out[0] = tmp[0] + in[0] final after 1.0
`, "1 round; each rank sends m bytes (m: one block)", 2, 0, 2, []string{"by a step to blame"}},
	{"memory that nobody wrote", `plan empty all_reduce ranks=2 needs=messages
rank 0
  tmp 0/0
  lane 0
    send tmp[0] to 1
  lane 1
    recvreduce out[0] = in[0] + msg from 1 final
rank 1
  lane 0
    send in[0] to 0
  lane 1
    recvreduce out[0] = in[0] + msg from 0 final
`, "1 round; each rank sends m bytes (m: one block)", 1, 0, 2, []string{"nobody wrote it"}},
	{"chunks that do not fit", `plan long all_reduce ranks=2 split=2 needs=messages
rank 0
  lane 0
    send in[0:2] to 1
  lane 1
    recvreduce out[0:2] = in[0:2] + msg from 1 final
rank 1
  lane 0
    send in[0:2] to 0
  lane 1
    recvreduce out[0] = in[0] + msg from 0 final
`, "1 of 4 steps never happen", 1, 1, 0, nil},
	{"a signal that nobody gives", `plan mute all_reduce ranks=2 flags=1 needs=puts
rank 0
  lane 0
    copy out[0] = in[0] final
    wait 1
rank 1
  lane 0
    copy out[0] = in[0] final
`, "1 of 3 steps never happen", 0, 1, 0, []string{"never happens"}},
}

// TestWrongPlansShowIt: the verdict is above the picture, steps that never happen are dashed, and
// steps at fault have an edge.
func TestWrongPlansShowIt(t *testing.T) {
	for _, test := range wrongPlans {
		t.Run(test.name, func(t *testing.T) {
			p, err := plan.Parse([]byte("goccl plan format 2\n" + test.text))
			require.NoError(t, err)
			_, err = verify.Plan(p, verify.Options{})
			var bad *verify.Counterexample
			require.True(t, errors.As(err, &bad), "%v", err)
			wrong := &draw.Verdict{Text: bad.Summary()}
			for _, w := range bad.At {
				wrong.Blamed = append(wrong.Blamed, draw.Place{Rank: w.Rank, Lane: w.Lane, Step: w.Step})
			}
			for _, w := range bad.Stuck {
				wrong.Stuck = append(wrong.Stuck, draw.Place{Rank: w.Rank, Lane: w.Lane, Step: w.Step})
			}
			text, err := draw.SVG(p, draw.Options{Wrong: wrong})
			require.NoError(t, err)
			wellFormed(t, text)
			again, err := draw.SVG(p, draw.Options{Wrong: wrong})
			require.NoError(t, err)
			require.Equal(t, text, again)
			require.Contains(t, text, ">"+test.facts+"<")
			var said []string
			for _, line := range strings.Split(text, "\n") {
				if line, ok := strings.CutPrefix(line, `<text class="worse" `); ok {
					_, line, _ = strings.Cut(line, ">")
					said = append(said, strings.TrimSuffix(line, "</text>"))
				}
			}
			plain := strings.NewReplacer("&#34;", `"`).Replace(strings.Join(said, " "))
			require.Equal(t, bad.Summary(), plain)
			legend := func(words string) int { return strings.Count(text, words) }
			require.Equal(t, test.never, strings.Count(text, `class="a never"`)-legend(">never happens<"))
			require.Equal(t, test.arrows, strings.Count(text, `class="a k`), "arrows of what happens")
			require.Equal(t, test.blamed, strings.Count(text, `class="blame"`)-legend(">by a step to blame<"))
			for _, words := range test.out {
				require.Contains(t, text, words)
			}
		})
	}
}
