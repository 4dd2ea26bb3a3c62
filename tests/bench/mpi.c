/* Any MPI: compiled against the mpi.h of each, and started by its mpiexec. Argument: single or multiple (threads). */
#include "library.h"

#include <mpi.h>
#include <string.h>

static struct work work;
static int rank, size;

static void must(int code, const char* what) {
  if (code != MPI_SUCCESS)
    fail("%s: MPI error %d", what, code);
}

void library_open(int argc, char** argv, struct place* place) {
  int provided;
  if (argc != 1)
    fail("wanted: single or multiple");
  must(MPI_Init_thread(NULL, NULL, strcmp(argv[0], "multiple") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &provided),
       "MPI_Init_thread");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  place->rank = rank;
  place->size = size;
}

void library_join(int ranks, char** addresses) { (void)ranks, (void)addresses; }

int library_prepare(const struct work* wanted) {
  work = *wanted;
  return work.element == F32; /* no MPI of today has bf16 */
}

void library_run(void) {
  int all = (int)work.count, part = all / size;
  switch (work.op) {
    case ALL_REDUCE:
      must(MPI_Allreduce(MPI_IN_PLACE, work.in, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
      break;
    case ALL_GATHER:
      must(MPI_Allgather(work.in, part, MPI_FLOAT, work.out, part, MPI_FLOAT, MPI_COMM_WORLD), "MPI_Allgather");
      break;
    case REDUCE_SCATTER:
      must(MPI_Reduce_scatter_block(work.in, work.out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
           "MPI_Reduce_scatter_block");
      break;
    case ALL_TO_ALL:
      must(MPI_Alltoall(work.in, part, MPI_FLOAT, work.out, part, MPI_FLOAT, MPI_COMM_WORLD), "MPI_Alltoall");
      break;
    case BROADCAST:
      must(MPI_Bcast(work.in, all, MPI_FLOAT, 0, MPI_COMM_WORLD), "MPI_Bcast");
      break;
    default:
      if (rank == 0) {
        must(MPI_Send(work.in, all, MPI_FLOAT, 1, 0, MPI_COMM_WORLD), "MPI_Send");
        must(MPI_Recv(work.out, all, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
      } else if (rank == 1) {
        must(MPI_Recv(work.out, all, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
        must(MPI_Send(work.in, all, MPI_FLOAT, 0, 0, MPI_COMM_WORLD), "MPI_Send");
      }
  }
}

void library_barrier(void) { must(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }

void library_close(void) { MPI_Finalize(); }
