package verbs

const mutexBytes = 48 // pthread_mutex_t of glibc
