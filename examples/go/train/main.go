// Train fits a line to points that the ranks share among them: each computes the gradient of its
// own points, and all take the average of all gradients.
//
//	goccl run -n 4 -- go run ./examples/go/train
//
// On two hosts, with the address of the first one:
//
//	A$ goccl run -n 2 --hosts 2 --host 0 --address 10.0.0.1 --port 29400 -- ./train
//	B$ goccl run -n 2 --hosts 2 --host 1 --address 10.0.0.1 --port 29400 -- ./train
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"time"

	"github.com/goccl/goccl/ccl"
)

func main() {
	if err := train(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func train(ctx context.Context) error {
	opts, err := ccl.OptionsFromEnv()
	if err != nil {
		return err
	}
	comm, err := ccl.Init(ctx, opts)
	if err != nil {
		return err
	}
	defer comm.Close()
	points := rand.New(rand.NewPCG(1, uint64(comm.Rank()))) // each rank has its own
	line := []float64{0, 0}                                 // y = line[0]·x + line[1]
	for step := range 201 {
		x := points.Float64()
		y := 3*x + 1
		miss := line[0]*x + line[1] - y
		gradient := []float64{miss * x, miss}
		if err := average(ctx, comm, gradient); err != nil {
			return err
		}
		for i := range line {
			line[i] -= 0.5 * gradient[i]
		}
		if step%50 == 0 && comm.Rank() == 0 {
			fmt.Printf("step %3d on %d ranks: y = %.3f x + %.3f\n", step, comm.Size(), line[0], line[1])
		}
	}
	return nil
}

// average waits for ten seconds at most: its error then says which rank is late.
func average(ctx context.Context, comm *ccl.Communicator, x []float64) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return ccl.AllReduce(ctx, comm, x, x, ccl.Avg)
}
