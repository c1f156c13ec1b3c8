/* Block-sparse 8-bit attention for C and C++ programs (attention.hpp is a C++ layer over this header).
 *
 *   sparsereel_attention* attention;
 *   sparsereel_attention_create(0, &attention);                    once per device and thread
 *   sparsereel_attention_call call;
 *   sparsereel_attention_call_init(&call, sizeof call);            sets defaults; then set sizes, tensors and policy
 *   sparsereel_attention_workspace_size(attention, &call, &bytes); once per kind of call
 *   sparsereel_attention_run(attention, &call, workspace, bytes, stream);
 *
 * A call computes out = softmax(q k^T scale) v; on a GPU both products are in 8 bits. It computes only the blocks of
 * 64 x 64 that the policy selects and drops the others. By default the means of 16 tokens stand for dropped blocks.
 * More blocks can be dropped if neighbors in space and time are neighbors in the sequence: see
 * sparsereel_token_order().
 *
 * No function prints, ends the process or throws an exception. On a GPU a call only enqueues work: it neither waits for
 * the device nor allocates memory. On a CPU it returns when the result is complete. Packed keys and values, and copies
 * of tensors, are then in the workspace; the data that selects blocks is on the heap.
 */
#ifndef SPARSEREEL_ATTENTION_H
#define SPARSEREEL_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SPARSEREEL_API __attribute__((visibility("default")))
#else
#define SPARSEREEL_API
#endif

/* Stands behind the name of each enumeration. The enumeration then has the type int in C++ too and can hold any
 * number. The library therefore checks every value that it is given. */
#ifdef __cplusplus
#define SPARSEREEL_INT : int
extern "C" {
#else
#define SPARSEREEL_INT
#endif

typedef enum sparsereel_status SPARSEREEL_INT {
  SPARSEREEL_OK = 0,
  SPARSEREEL_BAD_ARGUMENT = 1,        /* a null pointer, or an impossible size, stride or policy */
  SPARSEREEL_WORKSPACE_TOO_SMALL = 2, /* see sparsereel_attention_workspace_size() */
  SPARSEREEL_UNSUPPORTED = 3,         /* a valid call that no kernel supports: head_dim, element, alignment */
  SPARSEREEL_NO_DEVICE = 4,           /* no such GPU, a GPU below compute capability 8.0, or a build without CUDA */
  SPARSEREEL_TOO_SHORT = 5,           /* so few operations that full attention in 16 bits is faster; nothing was done */
  SPARSEREEL_CUDA_ERROR = 6,          /* CUDA refused a launch */
  SPARSEREEL_EARLIER_CUDA_ERROR = 7,  /* a CUDA error from before this call */
  SPARSEREEL_OUT_OF_MEMORY = 8,       /* on the host */
  SPARSEREEL_FAILED = 9
} sparsereel_status;

/* Returns the name of a status, such as "too short". */
SPARSEREEL_API const char* sparsereel_status_name(sparsereel_status status);

/* Returns the cause and the remedy of this thread's last failure (a status other than SPARSEREEL_OK). The text is
 * valid until the next failure. */
SPARSEREEL_API const char* sparsereel_message(void);

/* Returns the version, such as "0.1.0". */
SPARSEREEL_API const char* sparsereel_attention_version(void);

/* Returns 1 if this build contains the CUDA kernels. */
SPARSEREEL_API int sparsereel_attention_has_cuda(void);

/* -- A device's handle ------------------------------------------------------------------------------------------- */

/* Owns the resources that calls share: streams and events of a GPU, or the threads of a CPU. A program may have any
 * number of handles per device. Threads may share a handle; the calls of one handle are enqueued one after the
 * other. */
typedef struct sparsereel_attention sparsereel_attention;

#define SPARSEREEL_CPU (-1)

/* Creates a handle. device: SPARSEREEL_CPU, or the number of a GPU as CUDA counts them. No function of this header
 * changes the current device. */
SPARSEREEL_API sparsereel_status sparsereel_attention_create(int device, sparsereel_attention** attention);

/* Frees a handle. On a GPU its calls must have ended. Null is allowed. */
SPARSEREEL_API void sparsereel_attention_destroy(sparsereel_attention* attention);

/* Runs body(body_context, begin, end) over ranges that cover [0, count) exactly once, and returns when all are done. */
typedef void (*sparsereel_parallel_for)(void* context, int64_t count,
                                        void (*body)(void* body_context, int64_t begin, int64_t end),
                                        void* body_context);

/* For a CPU handle only. set_threads() sets how many threads calls use, up to 1024; 0 (the default) means all of the
 * machine. set_parallel_for() replaces these threads, for example by the program's own pool. The handle restarts its
 * own threads in the child of a fork(). */
SPARSEREEL_API sparsereel_status sparsereel_attention_set_threads(sparsereel_attention* attention, int threads);
SPARSEREEL_API sparsereel_status sparsereel_attention_set_parallel_for(sparsereel_attention* attention,
                                                                       sparsereel_parallel_for parallel_for,
                                                                       void* context);

/* -- A call ------------------------------------------------------------------------------------------------------ */

typedef enum sparsereel_element SPARSEREEL_INT {
  SPARSEREEL_FP32 = 0,
  SPARSEREEL_FP16 = 1,
  SPARSEREEL_BF16 = 2
} sparsereel_element;

/* [batch, tokens, heads, head_dim] with contiguous head_dim, in the memory of the handle's device. Strides are in
 * elements, so the first three dimensions may have any order. On a GPU rows are aligned to 16 bytes (data is
 * aligned, strides are multiples of 8) and token strides are below 2^31. */
typedef struct sparsereel_tensor {
  void* data;
  int64_t batch_stride, token_stride, head_stride;
} sparsereel_tensor;

/* The rule that selects the key blocks to compute for a query tile. */
typedef enum sparsereel_selection SPARSEREEL_INT {
  SPARSEREEL_TOPK = 0,       /* a fraction of the blocks */
  SPARSEREEL_CDF = 1,        /* the fewest blocks that hold a given share of the ranking's total */
  SPARSEREEL_ERROR = 2,      /* the fewest blocks that keep the predicted error of the dropped ones below a bound */
  SPARSEREEL_DENSE = 3,      /* all blocks */
  SPARSEREEL_BLOCK_ERROR = 4 /* every block whose own predicted error is above a bound, and always the largest */
} sparsereel_selection;

/* The replacement of blocks that are not computed. */
typedef enum sparsereel_dropped SPARSEREEL_INT {
  SPARSEREEL_MEANS = 0,  /* the mean of every `cell` tokens acts as one key with the weight of them all */
  SPARSEREEL_NOTHING = 1 /* nothing, as published with SpargeAttn */
} sparsereel_dropped;

/* The measure by which blocks are ranked. */
typedef enum sparsereel_ranking SPARSEREEL_INT {
  SPARSEREEL_BY_ERROR = 0, /* the error of replacing a block by means */
  SPARSEREEL_BY_MASS = 1   /* the mass of the softmax of pooled queries and keys, as published with SpargeAttn */
} sparsereel_ranking;

typedef struct sparsereel_head_policy {
  sparsereel_selection selection;
  /* Fraction of the blocks to compute, in (0, 1]. Ranked by mass, it applies to the blocks that each tile sees.
   * Ranked by error, all heads and tiles of a batch entry share one budget, and blocks go where they reduce the
   * error most. If heads have different policies, each head has its own budget. */
  double topk;
  double cdf; /* share of the ranking's total to compute, in (0, 1] */
  /* Bound in (0, 1000]. SPARSEREEL_ERROR: error of a tile's output, relative to the mean length of its head's
   * outputs. SPARSEREEL_BLOCK_ERROR: error that one block adds, relative to the mean length of all outputs that
   * share topk's budget. */
  double error;
  double similarity;   /* blocks whose tokens have a mean cosine below this are always computed; off below 0 */
  double pv_threshold; /* P.V is skipped for blocks whose scores are all this many log2 units below their rows' maxima;
                          32 or more skips none */
} sparsereel_head_policy;

typedef struct sparsereel_attention_policy {
  sparsereel_head_policy all;          /* the policy of every head, unless `heads` is set */
  const sparsereel_head_policy* heads; /* host [heads], copied; null if all heads are alike */
  sparsereel_dropped dropped;
  sparsereel_ranking ranking;
  int64_t cell;            /* tokens per mean: 16; a CPU also takes 32 and 64 */
  int64_t selection_rows;  /* queries that share a selection: 64, 128 or 192 */
  double dense_operations; /* GPU calls with fewer operations (4 batch heads queries keys head_dim) return
                              SPARSEREEL_TOO_SHORT; 0 turns this off */
} sparsereel_attention_policy;

typedef enum sparsereel_norm SPARSEREEL_INT {
  SPARSEREEL_NO_NORM = 0,
  SPARSEREEL_LAYER_NORM = 1,
  SPARSEREEL_RMS_NORM = 2
} sparsereel_norm;

/* Applied to q and k before attention, in fp32: a norm, then a rotary embedding. All pointers are to memory of the
 * device. On a GPU head_dim is a multiple of 16 here, and weights and biases are aligned to 16 bytes. */
typedef struct sparsereel_attention_prologue {
  sparsereel_norm norm;
  int across_heads; /* normalize over heads x head_dim instead of per head */
  double eps;
  const float *q_weight, *q_bias, *k_weight,
      *k_bias; /* [head_dim], or across heads [q's or k's heads x head_dim]; null if absent */
  /* Tables [queries - text_tokens, head_dim] for self-attention, in token order; the last text_tokens are not
   * rotated. Null if there is no rotary embedding. The two entries of a pair are equal. */
  const float *rotary_cos, *rotary_sin;
  const void* rotary_pairs; /* GPU only, in place of tables: fp16 [queries - text_tokens, head_dim / 2, 2]. If tables
                               are given, every call makes such pairs in its workspace */
  int interleaved;          /* 1: pairs are (2 i, 2 i + 1); 0: (i, i + head_dim / 2) */
} sparsereel_attention_prologue;

/* Parts of a self-attention prologue that differ by token or by head. They require interleaved pairs and a norm per
 * head or none. On a GPU every pointer is aligned to 16 bytes. */
typedef struct sparsereel_attention_parts {
  /* Weights [head_dim] for the last text_tokens in place of q_weight and k_weight, without biases. If null,
   * these tokens use q_weight and k_weight. */
  const float *text_q_weight, *text_k_weight;
  /* These replace rotary tables; null if tables or nothing is given. Pair i of head h turns by the product of a token's
   * position and column i of the frequencies, in radians. Positions are [queries - text_tokens, 4] in token order, of
   * which the first three are used. Frequencies are [heads, 3, head_dim / 2]. */
  const float *rotary_positions, *rotary_frequencies;
} sparsereel_attention_parts;

/* Counters of a call, in blocks of 64 x 64 over all heads. */
enum {
  SPARSEREEL_COUNT_KEPT = 0,       /* blocks computed */
  SPARSEREEL_COUNT_SKIPPED_PV = 1, /* computed blocks whose P.V was skipped */
  SPARSEREEL_COUNT_MEANS = 2,      /* cost of the means, in blocks */
  SPARSEREEL_COUNT_ERROR = 3,      /* predicted errors summed over query tiles, in units of 2^-24 */
  SPARSEREEL_COUNTS = 4
};

typedef struct sparsereel_attention_call {
  size_t size; /* size of this struct, set by sparsereel_attention_call_init(). New fields are only added at the end; a
                  field that an older program does not know has its default */
  sparsereel_element element; /* type of q, k, v and out; a GPU takes fp16 and bf16 */
  int64_t batch, heads, queries, keys;
  int64_t head_dim;          /* 16 to 256; on a GPU a multiple of 8 */
  sparsereel_tensor q, k, v; /* read only */
  sparsereel_tensor out;     /* [batch, queries, heads, head_dim] */
  float* lse;                /* [batch, heads, queries], natural log of the sum; null if not wanted */
  double scale;              /* 0 means head_dim^-0.5 */
  int quantized;       /* 1 computes every block, whatever the policy says, and uses 8 bits on a CPU too; with 0 a CPU
                          computes in fp32 */
  int64_t text_tokens; /* last tokens of q and k whose blocks are always computed, as keys and as queries */
  int causal;          /* query i sees keys up to i + keys - queries */
  const int64_t* key_lengths; /* device [batch], each from 0 to `keys`; null if every key counts */
  sparsereel_attention_policy policy;
  const uint8_t* map; /* device [batch, heads, ceil(queries / map_rows), ceil(keys / 64)]; 0 drops a block. Replaces the
                         policy's selection; text_tokens then only says which blocks have means. May be null */
  int64_t map_rows;   /* 64 or 128 */
  sparsereel_attention_prologue prologue;
  uint64_t* counts; /* device [SPARSEREEL_COUNTS], added to; null if not wanted */
  /* The fields below were added later: programs that were compiled without them pass a smaller size. */
  int64_t kv_heads; /* heads of k and v, a divisor of `heads`: heads / kv_heads neighboring heads of q share one, which
                       is read, quantized and stored once. 0 means as many as heads */
  int64_t arithmetic; /* bits in which a GPU multiplies: 8, or 16 in the tensors' own type. 16 shows the error of
                         dropped blocks without that of 8 bits. 0 means 8. Not with `quantized`. CPUs use fp32 */
  sparsereel_attention_parts parts; /* parts of the prologue */
} sparsereel_attention_call;

/* Sets every field to its default. size: sizeof(sparsereel_attention_call) as the program was compiled. */
SPARSEREEL_API sparsereel_status sparsereel_attention_call_init(sparsereel_attention_call* call, size_t size);

/* Writes the bytes of device memory that the call needs, of any alignment. It does not use the pointers of the call,
 * so tensors need not exist yet. The content of the workspace means nothing between calls. */
SPARSEREEL_API sparsereel_status sparsereel_attention_workspace_size(sparsereel_attention* attention,
                                                                     const sparsereel_attention_call* call,
                                                                     size_t* bytes);

/* Enqueues the call. stream: a cudaStream_t of the device, null on a CPU. If it returns SPARSEREEL_TOO_SHORT, run
 * your own full attention for this call. */
SPARSEREEL_API sparsereel_status sparsereel_attention_run(sparsereel_attention* attention,
                                                          const sparsereel_attention_call* call, void* workspace,
                                                          size_t bytes, void* stream);

/* Writes the number of blocks, over all heads, that hold a pair which the masks allow. SPARSEREEL_COUNT_KEPT counts
 * a part of these. Returns SPARSEREEL_UNSUPPORTED for key_lengths on a GPU, which it cannot read. */
SPARSEREEL_API sparsereel_status sparsereel_attention_total_blocks(sparsereel_attention* attention,
                                                                   const sparsereel_attention_call* call,
                                                                   int64_t* blocks);

/* Writes a description of the code that runs the call, such as "cuda int8 Q.K, e4m3 P.V (hopper), means of 16 tokens
 * for dropped blocks". The text is cut to `size` bytes, including its terminating 0. */
SPARSEREEL_API sparsereel_status sparsereel_attention_describe(sparsereel_attention* attention,
                                                               const sparsereel_attention_call* call, char* text,
                                                               size_t size);

/* -- Token orders ------------------------------------------------------------------------------------------------ */

typedef enum sparsereel_order SPARSEREEL_INT {
  SPARSEREEL_HILBERT = 0,    /* generalized 3D Hilbert curve, the best order for selecting blocks */
  SPARSEREEL_NATIVE = 1,     /* width fastest, then height, then frames */
  SPARSEREEL_TIME_MAJOR = 2, /* frames fastest */
  SPARSEREEL_MORTON = 3
} sparsereel_order;

/* Writes order[i], the native index (t height + h) width + w of the token at position i of the sequence, and
 * inverse[native] = i. Both are [frames height width] in host memory; either may be null. The library keeps each
 * order until the process ends. */
SPARSEREEL_API sparsereel_status sparsereel_token_order(sparsereel_order order, int64_t frames, int64_t height,
                                                        int64_t width, int64_t* places, int64_t* inverse);

#ifdef __cplusplus
}
#endif

#endif
