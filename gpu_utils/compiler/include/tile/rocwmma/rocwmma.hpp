// TileLang's templates include this header of rocWMMA and use nothing of it.
#include "../w2w_tile.h"
