package verbs

const mutexBytes = 40 // pthread_mutex_t
