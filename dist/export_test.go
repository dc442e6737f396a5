package dist

var (
	LocalWithin = localWithin
	FirstHost   = firstHost
)

const Piece = piece
