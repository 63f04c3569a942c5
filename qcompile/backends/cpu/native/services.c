/* What generated code imports: errors, scratch memory, threads. Linked into every kernel library, so that a library
 * needs nothing but libc and pthreads. */
#define _GNU_SOURCE
#include "services.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define PAUSE() _mm_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ __volatile__("yield")
#else
#define PAUSE() ((void)0)
#endif

#define CACHED_BLOCKS 32
#define SPINS 2000

/* --- errors ------------------------------------------------------------------------------------------------------ */

static _Thread_local char last_error[1024];

const char *qc_last_error(void) { return last_error; }

void qc_set_error(const char *text) { snprintf(last_error, sizeof last_error, "%s", text); }

/* Generated code reports its failures here. */
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  size_t length = (size_t)snprintf(last_error, sizeof last_error, "%s: ", kind);
  for (int32_t i = 0; i < count && length < sizeof last_error; i++)
    length += (size_t)snprintf(last_error + length, sizeof last_error - length, "%s", parts[i]);
}

/* --- scratch memory: freed blocks are kept for the next call ------------------------------------------------------ */

typedef struct block_header {
  size_t capacity;
  struct block_header *outer; /* the block that the same thread took before this one */
  char padding[48];           /* what follows stays on its own 64-byte line */
} block_header;

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static block_header *cached[CACHED_BLOCKS];
static int cached_count;
/* The blocks that this thread holds. Code that fails half-way does not give them back itself. */
static _Thread_local block_header *held;

static block_header *take_cached(size_t capacity) {
  block_header *block = NULL;
  pthread_mutex_lock(&memory_lock);
  int best = -1;
  for (int i = 0; i < cached_count; i++)
    if (cached[i]->capacity >= capacity && (best < 0 || cached[i]->capacity < cached[best]->capacity)) best = i;
  if (best >= 0 && cached[best]->capacity <= 4 * capacity + 65536) {
    block = cached[best];
    cached[best] = cached[--cached_count];
  }
  pthread_mutex_unlock(&memory_lock);
  return block;
}

static void empty_cache(void) {
  pthread_mutex_lock(&memory_lock);
  for (int i = 0; i < cached_count; i++) free(cached[i]);
  cached_count = 0;
  pthread_mutex_unlock(&memory_lock);
}

static void *allocate(int device_type, int device, uint64_t bytes, int type_code, int type_bits) {
  (void)device_type, (void)device, (void)type_code, (void)type_bits;
  if (bytes > UINT64_MAX / 2) return NULL;
  size_t capacity = ((size_t)bytes + 63) & ~(size_t)63;
  block_header *block = take_cached(capacity);
  if (block == NULL) {
    block = aligned_alloc(64, sizeof(block_header) + capacity);
    if (block == NULL) {
      empty_cache(); /* blocks of other sizes may make room */
      block = aligned_alloc(64, sizeof(block_header) + capacity);
    }
    if (block == NULL) {
      snprintf(last_error, sizeof last_error, "out of memory: %llu bytes of scratch memory",
               (unsigned long long)bytes);
      return NULL;
    }
    block->capacity = capacity;
  }
  block->outer = held;
  held = block;
  return block + 1;
}

static int release(int device_type, int device, void *pointer) {
  (void)device_type, (void)device;
  if (pointer == NULL) return 0;
  block_header *block = (block_header *)pointer - 1;
  for (block_header **link = &held; *link != NULL; link = &(*link)->outer)
    if (*link == block) {
      *link = block->outer;
      break;
    }
  pthread_mutex_lock(&memory_lock);
  if (cached_count < CACHED_BLOCKS) {
    cached[cached_count++] = block;
    block = NULL;
  }
  pthread_mutex_unlock(&memory_lock);
  free(block);
  return 0;
}

void *qc_held_memory(void) { return held; }

void qc_release_memory(void *until) {
  while (held != NULL && held != until) release(0, 0, held + 1);
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

typedef struct {
  void *synchronization;
  int32_t task_count;
} task_environment;
typedef int (*task_function)(int task, task_environment *environment, void *data);

static struct {
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  pthread_t threads[QC_MAXIMUM_THREADS];
  int thread_count;
  int stopping;
  atomic_int busy;
  atomic_uint generation;
  /* the job of the current generation; workers join it while it is open, and nobody waits for those that come late */
  int open;
  int workers;
  cpu_set_t allowed;       /* CPUs that the thread that made the workers may use */
  atomic_int launcher_cpu; /* where the caller of the job runs */
  task_function function;
  void *data;
  task_environment environment;
  atomic_int next_task, joined, failure;
  char error[sizeof last_error];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static _Thread_local int requested_threads;

/* The number of threads by QCOMPILE_NUM_THREADS, else of cores that the process may use; 0 where the variable is wrong. */
static int default_threads(void) {
  const char *text = getenv("QCOMPILE_NUM_THREADS");
  long count = 0;
  if (text != NULL && *text != 0) {
    char *end;
    count = strtol(text, &end, 10);
    if (*end != 0 || count < 1) return 0;
  } else {
    cpu_set_t set;
    count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  }
  return count > QC_MAXIMUM_THREADS ? QC_MAXIMUM_THREADS : (int)count;
}

int qc_request_threads(int32_t threads) {
  requested_threads = threads > QC_MAXIMUM_THREADS ? QC_MAXIMUM_THREADS : threads > 0 ? threads : default_threads();
  if (requested_threads > 0) return 0;
  qc_set_error("the environment variable QCOMPILE_NUM_THREADS is not a positive integer");
  return -1;
}

static void take_tasks(void) {
  for (;;) {
    int task = atomic_fetch_add(&pool.next_task, 1);
    if (task >= pool.environment.task_count) return;
    void *before = qc_held_memory();
    if (pool.function(task, &pool.environment, pool.data) != 0) {
      qc_release_memory(before);
      int expected = 0;
      if (atomic_compare_exchange_strong(&pool.failure, &expected, 1)) memcpy(pool.error, last_error, sizeof last_error);
    }
  }
}

/* The system wakes a worker on the CPU where it slept, and on some machines leaves it there although the caller is
 * busy on that CPU and others are idle: it would find every job done. So it goes elsewhere by itself. */
static void leave_the_launchers_cpu(cpu_set_t others) {
  int cpu = sched_getcpu();
  if (cpu < 0 || cpu >= CPU_SETSIZE || cpu != atomic_load(&pool.launcher_cpu)) return;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) > 0) pthread_setaffinity_np(pthread_self(), sizeof others, &others);
}

static void *worker(void *argument) {
  int index = (int)(intptr_t)argument;
  unsigned seen = 0;
  for (;;) {
    for (int i = 0; i < SPINS && atomic_load(&pool.generation) == seen; i++) PAUSE();
    pthread_mutex_lock(&pool.lock);
    while (atomic_load(&pool.generation) == seen && !pool.stopping) pthread_cond_wait(&pool.work, &pool.lock);
    seen = atomic_load(&pool.generation);
    int stopping = pool.stopping, joins = pool.open && index < pool.workers;
    cpu_set_t allowed = pool.allowed;
    if (joins) atomic_fetch_add(&pool.joined, 1);
    pthread_mutex_unlock(&pool.lock);
    if (stopping) return NULL;
    leave_the_launchers_cpu(allowed);
    if (!joins) continue;
    take_tasks();
    pthread_mutex_lock(&pool.lock);
    if (atomic_fetch_sub(&pool.joined, 1) == 1) pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.lock);
  }
}

static int run_serially(task_function function, void *data, int count) {
  task_environment environment = {NULL, count};
  void *before = qc_held_memory();
  for (int task = 0; task < count; task++)
    if (function(task, &environment, data) != 0) {
      qc_release_memory(before);
      return -1;
    }
  return 0;
}

/* The number of tasks never changes a result: a task computes whole iterations of the parallel loop. */
static int launch(task_function function, void *data, int count) {
  if (count <= 0) count = requested_threads;
  if (count > QC_MAXIMUM_THREADS) count = QC_MAXIMUM_THREADS;
  if (count == 1) return run_serially(function, data, 1);
  int idle = 0;
  if (!atomic_compare_exchange_strong(&pool.busy, &idle, 1)) return run_serially(function, data, count);
  pthread_mutex_lock(&pool.lock);
  if (pool.thread_count < count - 1 && sched_getaffinity(0, sizeof pool.allowed, &pool.allowed) != 0)
    CPU_ZERO(&pool.allowed);
  atomic_store(&pool.launcher_cpu, sched_getcpu());
  while (pool.thread_count < count - 1) {
    if (pthread_create(&pool.threads[pool.thread_count], NULL, worker, (void *)(intptr_t)pool.thread_count) != 0) break;
    pool.thread_count++;
  }
  pool.workers = pool.thread_count < count - 1 ? pool.thread_count : count - 1;
  pool.function = function;
  pool.data = data;
  pool.environment = (task_environment){NULL, count};
  atomic_store(&pool.next_task, 0);
  atomic_store(&pool.failure, 0);
  pool.open = 1;
  atomic_fetch_add(&pool.generation, 1);
  pthread_cond_broadcast(&pool.work);
  pthread_mutex_unlock(&pool.lock);
  take_tasks();
  for (int i = 0; i < SPINS && atomic_load(&pool.joined) > 0; i++) PAUSE();
  pthread_mutex_lock(&pool.lock);
  pool.open = 0;
  while (atomic_load(&pool.joined) > 0) pthread_cond_wait(&pool.done, &pool.lock);
  pthread_mutex_unlock(&pool.lock);
  int failed = atomic_load(&pool.failure);
  if (failed) memcpy(last_error, pool.error, sizeof last_error);
  atomic_store(&pool.busy, 0);
  return failed ? -1 : 0;
}

/* --- life of the library ------------------------------------------------------------------------------------------ */

extern void *__TVMBackendAllocWorkspace __attribute__((weak));
extern void *__TVMBackendFreeWorkspace __attribute__((weak));
extern void *__TVMBackendParallelLaunch __attribute__((weak));

/* Nobody changes the list of blocks while the process is copied. */
static void before_fork(void) { pthread_mutex_lock(&memory_lock); }

static void after_fork_in_parent(void) { pthread_mutex_unlock(&memory_lock); }

/* A child process has none of the threads and may have inherited held locks. */
static void after_fork_in_child(void) {
  pthread_mutex_init(&pool.lock, NULL);
  pthread_mutex_init(&memory_lock, NULL);
  pthread_cond_init(&pool.work, NULL);
  pthread_cond_init(&pool.done, NULL);
  pool.thread_count = 0;
  atomic_store(&pool.busy, 0);
}

__attribute__((constructor)) static void connect(void) {
  if (&__TVMBackendAllocWorkspace) __TVMBackendAllocWorkspace = (void *)allocate;
  if (&__TVMBackendFreeWorkspace) __TVMBackendFreeWorkspace = (void *)release;
  if (&__TVMBackendParallelLaunch) __TVMBackendParallelLaunch = (void *)launch;
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

__attribute__((destructor)) static void disconnect(void) {
  pthread_mutex_lock(&pool.lock);
  pool.stopping = 1;
  pthread_cond_broadcast(&pool.work);
  pthread_mutex_unlock(&pool.lock);
  for (int i = 0; i < pool.thread_count; i++) pthread_join(pool.threads[i], NULL);
  pool.thread_count = 0;
  empty_cache();
}
