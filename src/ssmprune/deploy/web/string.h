/* What the C of a model needs of <string.h>; the compiler brings both. */
#define memset __builtin_memset
#define memcpy __builtin_memcpy
