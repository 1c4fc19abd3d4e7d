/* A @FAMILY@ classifier, written by ssmprune: @DEPTH@ layers of width @WIDTH@, states in each: @PAIRS@.
   Compile with -O3; -march=native -mtune=generic (x86) or -mcpu=native (ARM) and -ffp-contract=fast make it faster.
#if INTEGERS
   Weights are whole numbers of @BITS@, each row with a scale; poles, norms and biases are floats.
#endif
#if INTEGERS && S4D
   So is C: times B, as loops need it, it takes less room than whole numbers with a complex B beside them.
#endif
   See @HEADER@ for how to call it, and the end of this file for a program to try it with. */

#if defined(__GNUC__) && !defined(__clang__)
/* Else gcc makes branches of the clamps in GELU and sigmoid, which keeps them out of vectors. */
#pragma GCC optimize("no-trapping-math", "finite-math-only", "no-signed-zeros")
#endif

#include "@HEADER@"

#include <math.h>
#include <string.h>

#ifdef __cplusplus
#define restrict __restrict
#endif

#define WIDTH @WIDTH@ /* features of a step */
#define ROW @ROW@ /* the same, filled up to whole panels */
#define DEPTH @DEPTH@
#define BLOCK MODEL_BLOCK
#define STRIDE @STRIDE@ /* from one step's input to the next */
#define WIDEST @WIDEST@
#define DECODER_ROW @DECODER_ROW@
#if INTEGERS
#define LONGEST @LONGEST@ /* inputs of a matrix that blocks of steps go through, filled up to whole words */
#define LONGEST_OF_ALL @LONGEST_OF_ALL@ /* inputs of any matrix, filled up likewise */
#endif
#if LAYER_NORM
#define NORM_EPS @NORM_EPS@f
#endif
#if S4D
#define MODE_PARTS @MODE_PARTS@
#endif
#if BIDIRECTIONAL
#define STATES_ROOM @STATES_ROOM@ /* floats of the largest layer's state */
#else
static const int STATES[DEPTH] = {@STATES_EACH@}; /* floats of each layer's state */
#endif

