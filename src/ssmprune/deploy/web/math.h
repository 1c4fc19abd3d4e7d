/* What the C of a model needs of <math.h>: instructions of WebAssembly. */
#define fabsf __builtin_fabsf
#define sqrtf __builtin_sqrtf
