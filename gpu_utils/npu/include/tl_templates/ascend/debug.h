// In place of the header of this name of TileLang: nothing is printed from a virtual AI core.
#pragma once
