"""From fields to pictures: along rays, by distance or by density."""
