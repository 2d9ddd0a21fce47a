#include "catalog/source.h"
