/* CHECK(call) for the examples: prints what went wrong and ends the process. */
#ifndef EXAMPLES_CHECK_H_
#define EXAMPLES_CHECK_H_

#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#define CHECK(call)                                           \
  do {                                                        \
    if ((call) != TUTTI_SUCCESS) {                            \
      fprintf(stderr, "%s: %s\n", #call, tutti_last_error()); \
      exit(1);                                                \
    }                                                         \
  } while (0)

#endif /* EXAMPLES_CHECK_H_ */
